package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/view"
	"ichido.dev/ichido/store/sqlite"
)

func (a *app) replay() *cobra.Command {
	var s selection
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Have stored events worked again: by id, or by filter",
		Long: `Have stored events worked again: by id, or by filter.

Done and dead events become pending, with their attempts forgotten. Their
handlers and destinations run again: they get the same event id. A running
server picks them up within a second. --dry-run only says how many.`,
		Example: `  ichido replay ev_01h2xcejqtf2nbrexx3vqjhp41
  ichido replay --state dead --source stripe --dry-run
  ichido replay --state dead --source stripe`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := s.resolve(cmd, time.Now()); err != nil {
				return err
			}
			chosen := s.filter
			chosen.Limit = 0
			if len(ids) == 0 && chosen == (ichido.Filter{}) {
				return usage("name ids, or filter by --source, --state, --type, --key, --since or --until", "which events?")
			}
			return a.withStore(cmd.Context(), &s.place, func(store *sqlite.Store) error {
				return a.replayIn(cmd, store, &s, ids, dryRun)
			})
		},
	}
	a.addSelection(cmd, &s, "all")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how many")
	return cmd
}

func (a *app) replayIn(cmd *cobra.Command, store *sqlite.Store, s *selection, ids []string, dryRun bool) error {
	f := s.filter
	filters := []ichido.Filter{f}
	if len(ids) > 0 {
		filters = nil
		for _, id := range ids {
			f.ID = id
			filters = append(filters, f)
		}
	}
	total := view.Replayed{DryRun: dryRun, Skipped: []view.Skipped{}}
	var failed error
	for _, f := range filters {
		done, err := view.Replay(cmd.Context(), store, f, dryRun)
		total.Add(done)
		if err != nil && !notReplayed(err) {
			failed = err
			break
		}
	}
	if err := a.print(total, func(w io.Writer) { printReplayed(w, &total) }); err != nil {
		return err
	}
	if failed == nil && total.Matched == 0 {
		failed = a.noteSource(cmd.Context(), store, s)
	}
	switch {
	case failed != nil:
		return failed
	case total.Matched == 0 && len(ids) == 1:
		return &failure{exitNone, fmt.Errorf("there is no event %q", ids[0]), `"ichido events" lists them`}
	case total.Matched == 0:
		return &failure{exitNone, errors.New("nothing matches"), `"ichido events" lists what there is`}
	case total.Events == 0, len(ids) > 0 && total.Left() > 0:
		return &failure{exitError, fmt.Errorf("%d event(s) cannot be replayed", total.Left()), ""}
	}
	return nil
}

// notReplayed reports whether an error is only about the event that was named.
func notReplayed(err error) bool {
	return errors.Is(err, ichido.ErrNotFound) || errors.Is(err, ichido.ErrBodyPurged) || errors.Is(err, ichido.ErrNotReplayable)
}

func printReplayed(w io.Writer, r *view.Replayed) {
	what := "replayed"
	if r.DryRun {
		what = "would be replayed"
	}
	fmt.Fprintf(w, "%d event(s) %s, of %d that match\n", r.Events, what, r.Matched)
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "  %d not: %s", s.Events, s.Reason)
		if s.ID != "" {
			fmt.Fprintf(w, " (%s)", view.Line(s.ID))
		}
		fmt.Fprintln(w)
	}
}

// deadGroup is dead letters with the same cause.
type deadGroup struct {
	Source string    `json:"source"`
	Cause  string    `json:"cause"`
	Events int       `json:"events"`
	Latest time.Time `json:"latest"`
	ID     string    `json:"id"` // of the latest
}

func (a *app) dead() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List dead letters, grouped by source and cause",
		Long: `List dead letters, grouped by source and cause, and the inline claims that
are held.

"ichido replay --state dead" has dead letters tried again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.state = string(ichido.Dead)
			if err := s.resolve(cmd, time.Now()); err != nil {
				return err
			}
			return a.withStore(cmd.Context(), &s.place, func(store *sqlite.Store) error {
				return a.printDead(cmd.Context(), store, &s)
			})
		},
	}
	a.addSelection(cmd, &s, "all")
	cmd.Flags().MarkHidden("state")
	return cmd
}

// deadLetters is what `ichido dead` shows.
type deadLetters struct {
	Groups []deadGroup `json:"groups"` // newest first
	Events int         `json:"events"`

	Claims    int      `json:"claims_held"`
	ClaimKeys []string `json:"claims_held_keys"` // the oldest of them
}

// add counts a dead letter; they come newest first.
func (d *deadLetters) add(r *ichido.Record) {
	d.Events++
	i := slices.IndexFunc(d.Groups, func(g deadGroup) bool { return g.Source == r.Source && g.Cause == r.Cause })
	if i < 0 {
		i = len(d.Groups)
		d.Groups = append(d.Groups, deadGroup{Source: r.Source, Cause: r.Cause, Latest: r.ReceivedAt.UTC(), ID: r.ID()})
	}
	d.Groups[i].Events++
}

func (a *app) printDead(ctx context.Context, store ichido.Archive, s *selection) error {
	d := deadLetters{Groups: []deadGroup{}, ClaimKeys: []string{}}
	if err := view.Each(ctx, store, s.filter, d.add); err != nil {
		return err
	}
	if d.Events == 0 {
		if err := a.noteSource(ctx, store, s); err != nil {
			return err
		}
	}
	stats, err := store.Stats(ctx)
	if err != nil {
		return err
	}
	d.Claims = stats.Pending
	d.ClaimKeys = append(d.ClaimKeys, stats.PendingKeys...)
	return a.print(d, d.print)
}

func (d *deadLetters) print(w io.Writer) {
	if len(d.Groups) == 0 {
		fmt.Fprintln(w, "no dead letters")
	} else {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "EVENTS\tSOURCE\tLATEST\tLATEST ID\tCAUSE")
		for _, g := range d.Groups {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", g.Events, view.Line(g.Source), g.Latest.Format("2006-01-02 15:04:05"), g.ID, view.Line(g.Cause))
		}
		t.Flush()
	}
	if d.Claims == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d inline claim(s) held; one that stays ran its handler and could not record it. The oldest:\n", d.Claims)
	for _, key := range d.ClaimKeys {
		fmt.Fprintf(w, "  %q\n", key)
	}
}
