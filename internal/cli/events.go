package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/view"
	"ichido.dev/ichido/store/sqlite"
)

// withStore opens the store the flags say, for one command.
func (a *app) withStore(ctx context.Context, p *place, f func(*sqlite.Store) error) error {
	if err := p.checkStore(); err != nil {
		return err
	}
	c := &config.Config{Store: p.store}
	if p.store == "" || p.config != "" {
		file, err := a.load(p)
		if errors.Is(err, errNoConfig) {
			return usage("--store sqlite:PATH or --config FILE says it", "which store? %w", err)
		}
		var f *failure
		if errors.As(err, &f) {
			f.hint = strings.TrimPrefix(f.hint+"; --store sqlite:PATH without --config needs no configuration", "; ")
		}
		if err != nil {
			return err
		}
		c = &file.Config
	}
	store, closeStore, err := a.openStore(ctx, c, false)
	if err != nil {
		return err
	}
	return errors.Join(f(store), closeStore())
}

// selection is the flags that choose events.
type selection struct {
	place
	filter       ichido.Filter
	state        string
	since, until string
}

func (a *app) addSelection(cmd *cobra.Command, s *selection, limit string) {
	f := cmd.Flags()
	f.StringVarP(&s.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	f.StringVar(&s.store, "store", "", "store, for example sqlite:inbox.db (default: the configuration's)")
	f.StringVar(&s.filter.Source, "source", "", "only of this source")
	f.StringVar(&s.state, "state", "", "only in this state: "+strings.Join(states(), ", "))
	f.StringVar(&s.filter.Outcome, "outcome", "", "only with this outcome: "+strings.Join(outcomes(), ", "))
	f.StringVar(&s.filter.Type, "type", "", "only of this event type")
	f.StringVar(&s.filter.Key, "key", "", "only with this key")
	f.StringVar(&s.since, "since", "", "received at or after: a time like 2026-01-31T00:00:00Z, or an age like 2h, counted back from now")
	f.StringVar(&s.until, "until", "", "received before, likewise")
	f.IntVar(&s.filter.Limit, "limit", 0, "at most this many, from 1 (default "+limit+")")
	complete(cmd, "state", states)
	complete(cmd, "outcome", outcomes)
	complete(cmd, "source", func() []string { return a.sourceNames(&s.place) })
}

// resolve checks the flags and completes the filter.
func (s *selection) resolve(cmd *cobra.Command, now time.Time) error {
	s.filter.State = ichido.State(s.state)
	if cmd.Flags().Changed("limit") && s.filter.Limit < 1 {
		return usage("leave it out, or write for example 100", "--limit must be 1 or more")
	}
	if s.filter.Before < 0 {
		return usage("the page before says it", "--before must not be negative")
	}
	if s.state != "" {
		if err := oneOf("state", s.state, states()); err != nil {
			return err
		}
	}
	if s.filter.Outcome != "" {
		if err := oneOf("outcome", s.filter.Outcome, outcomes()); err != nil {
			return err
		}
	}
	for _, bound := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", s.since, &s.filter.Since}, {"--until", s.until, &s.filter.Until}} {
		if bound.text == "" {
			continue
		}
		if age, err := time.ParseDuration(bound.text); err == nil {
			if age < 0 {
				return usage(fmt.Sprintf("an age counts back from now: %s %s", bound.flag, strings.TrimPrefix(bound.text, "-")), "%s must not be negative", bound.flag)
			}
			*bound.at = now.Add(-age)
			continue
		}
		t, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			return usage("write a time like 2026-01-31T00:00:00Z, or an age like 2h", "%s %q is neither a time nor an age", bound.flag, bound.text)
		}
		*bound.at = t
	}
	return nil
}

// noteSource says that nothing can be of the source that was asked for: it
// has no event, and the configuration does not name it.
func (a *app) noteSource(ctx context.Context, store ichido.Archive, s *selection) error {
	name := s.filter.Source
	if name == "" {
		return nil
	}
	stats, err := store.Stats(ctx)
	if err != nil {
		return err
	}
	configured := a.sourceNames(&s.place)
	if len(stats.Counts[name]) > 0 || slices.Contains(configured, name) {
		return nil
	}
	text := fmt.Sprintf("no event is of a source %q, and none of that name is configured", name)
	if near := config.Nearest(name, slices.Concat(configured, slices.Sorted(maps.Keys(stats.Counts)))); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	a.tell("note", "note", text, nil)
	return nil
}

func (a *app) events() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List stored events, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.resolve(cmd, time.Now()); err != nil {
				return err
			}
			return a.withStore(cmd.Context(), &s.place, func(store *sqlite.Store) error {
				return a.printPage(cmd.Context(), store, &s)
			})
		},
	}
	a.addSelection(cmd, &s, "50")
	cmd.Flags().Int64Var(&s.filter.Before, "before", 0, "only events with a smaller seq: what the page before says")
	return cmd
}

func (a *app) printPage(ctx context.Context, store ichido.Archive, s *selection) error {
	page, err := view.Page(ctx, store, s.filter)
	if err != nil {
		return err
	}
	if len(page.Events) == 0 {
		if err := a.noteSource(ctx, store, s); err != nil {
			return err
		}
	}
	return a.print(page, func(w io.Writer) {
		printEvents(w, page.Events)
		if page.Before > 0 {
			fmt.Fprintf(a.stderr, "there are older ones: --before %d\n", page.Before)
		}
	})
}

// printEvents prints a table of events.
func printEvents(w io.Writer, events []view.Event) {
	if len(events) == 0 {
		fmt.Fprintln(w, "no events")
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SEQ\tID\tRECEIVED\tSOURCE\tTYPE\tSTATE\tATTEMPTS\tCAUSE")
	for _, e := range events {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", e.Seq, e.ID, e.ReceivedAt.Format("2006-01-02 15:04:05"), view.Line(e.Source),
			view.Line(cmp.Or(e.Type, "-")), stateText(e), e.Attempts, view.Line(cmp.Or(clip(e.Cause, 60), "-")))
	}
	t.Flush()
}

func stateText(e view.Event) string {
	if e.Outcome != "" {
		return string(e.State) + "/" + e.Outcome
	}
	return string(e.State)
}

// clip cuts a text after n bytes, or before the character that they end in.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

func (a *app) show() *cobra.Command {
	var p place
	var body bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one event: what was proved, what happened to it, headers and body",
		Args:  oneArg("the id of an event", `"ichido events" lists them: ichido show ev_…`),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), &p, func(store *sqlite.Store) error {
				rec, err := store.Get(cmd.Context(), args[0])
				if errors.Is(err, ichido.ErrNotFound) {
					return &failure{exitNone, fmt.Errorf("there is no event %q", args[0]), `"ichido events" lists them`}
				}
				if err != nil {
					return err
				}
				if body && rec.Purged {
					return &failure{exitError, fmt.Errorf("the body of %s is not kept any more", args[0]), "retention: in the configuration says how long bodies are"}
				}
				if body && !a.json {
					_, err = a.env.Stdout.Write(rec.Body)
					return err
				}
				e := view.OfRecord(&rec)
				if body {
					e.Body, e.BodyBase64 = nil, rec.Body
				}
				return a.print(e, func(w io.Writer) { printEvent(w, e) })
			})
		},
	}
	cmd.Flags().StringVarP(&p.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	cmd.Flags().StringVar(&p.store, "store", "", "store, for example sqlite:inbox.db (default: the configuration's)")
	cmd.Flags().BoolVar(&body, "body", false, "print only the body, byte for byte; with --json, put it into body_base64")
	return cmd
}

// printEvent prints one event in full.
func printEvent(w io.Writer, e view.Event) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, view.Line(fmt.Sprintf(format, args...)))
	}
	when := func(at *time.Time) string {
		if at == nil {
			return "-"
		}
		return at.Format(time.RFC3339Nano)
	}
	signed := map[bool]string{true: "signed", false: "not signed"}[e.TypeSigned]
	row("id", "%s", e.ID)
	row("source", "%s", e.Source)
	row("key", "%s", e.Key)
	row("type", "%s (%s)", cmp.Or(e.Type, "-"), signed)
	row("state", "%s", stateText(e))
	if e.Cause != "" {
		row("cause", "%s", e.Cause)
	}
	row("proof", "%s, scheme %s, secret index %d", e.Strength, cmp.Or(e.Scheme, "default"), e.Secret)
	row("signed at", "%s", when(e.SignedAt))
	row("received at", "%s", when(&e.ReceivedAt))
	row("due at", "%s", when(e.DueAt))
	row("settled at", "%s", when(e.SettledAt))
	row("attempts", "%d, process deaths %d, replays %d", e.Attempts, e.Deaths, e.Replays)
	row("duplicates", "%d", e.Copies)
	row("fingerprint", "%s", e.Fingerprint)
	t.Flush()
	printHeaders(w, e.Headers)
	fmt.Fprintln(w)
	printBody(w, e)
	if e.Confirmed != nil {
		fmt.Fprintf(w, "\nconfirmed by the provider's API:\n%s\n", view.JSON(string(e.Confirmed)))
	}
}

func printHeaders(w io.Writer, headers map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			fmt.Fprintln(w, view.Line(name+": "+value))
		}
	}
}

// printBody prints JSON as it is, and other text quoted.
func printBody(w io.Writer, e view.Event) {
	switch {
	case e.BodyPurged:
		fmt.Fprintf(w, "(the body of %d bytes is not kept)\n", e.Size)
	case e.Body != nil && json.Valid([]byte(*e.Body)):
		fmt.Fprintln(w, view.JSON(*e.Body))
	case e.Body != nil:
		fmt.Fprintf(w, "%q\n", *e.Body)
	default:
		fmt.Fprintf(w, "(%d bytes that are not text; --body prints them)\n", e.Size)
	}
}
