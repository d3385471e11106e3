package cli

import (
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
			if err := s.resolve(time.Now()); err != nil {
				return err
			}
			chosen := s.filter
			chosen.Limit = 0
			if len(ids) == 0 && chosen == (ichido.Filter{}) {
				return usage("name ids, or filter by --source, --state, --type, --key, --since or --until", "which events?")
			}
			return a.withStore(cmd.Context(), &s.place, func(store *sqlite.Store) error {
				return a.replayIn(cmd, store, s.filter, ids, dryRun)
			})
		},
	}
	s.addTo(cmd, 0)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how many")
	return cmd
}

func (a *app) replayIn(cmd *cobra.Command, store *sqlite.Store, f ichido.Filter, ids []string, dryRun bool) error {
	total := 0
	filters := []ichido.Filter{f}
	if len(ids) > 0 {
		filters = nil
		for _, id := range ids {
			f.ID = id
			filters = append(filters, f)
		}
	}
	for _, f := range filters {
		n, err := store.Replay(cmd.Context(), f, dryRun)
		if err != nil {
			return replayFailure(f.ID, err)
		}
		total += n
	}
	err := a.print(map[string]any{"events": total, "dry_run": dryRun}, func(w io.Writer) {
		if dryRun {
			fmt.Fprintf(w, "%d event(s) would be replayed\n", total)
		} else {
			fmt.Fprintf(w, "%d event(s) replayed\n", total)
		}
	})
	if err == nil && total == 0 {
		return &failure{code: exitNone, err: errors.New("nothing matches")}
	}
	return err
}

func replayFailure(id string, err error) error {
	switch {
	case errors.Is(err, ichido.ErrNotFound):
		return &failure{exitNone, fmt.Errorf("there is no event %q", id), `"ichido events" lists them`}
	case errors.Is(err, ichido.ErrBodyPurged), errors.Is(err, ichido.ErrNotReplayable):
		return fmt.Errorf("event %s: %w", id, err)
	}
	return err
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
		Long: `List dead letters, grouped by source and cause.

"ichido replay --state dead" has them tried again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.state = string(ichido.Dead)
			if err := s.resolve(time.Now()); err != nil {
				return err
			}
			return a.withStore(cmd.Context(), &s.place, func(store *sqlite.Store) error {
				records, err := store.List(cmd.Context(), s.filter)
				if err != nil {
					return err
				}
				groups := groupDead(view.OfList(records).Events)
				return a.print(map[string]any{"groups": groups, "events": len(records)}, func(w io.Writer) { printDead(w, groups) })
			})
		},
	}
	s.addTo(cmd, 1000)
	cmd.Flags().MarkHidden("state")
	return cmd
}

// groupDead groups dead letters, newest group first.
func groupDead(events []view.Event) []deadGroup {
	groups := []deadGroup{}
	index := map[[2]string]int{}
	for _, e := range events {
		key := [2]string{e.Source, e.Cause}
		i, found := index[key]
		if !found {
			i = len(groups)
			index[key] = i
			groups = append(groups, deadGroup{Source: e.Source, Cause: e.Cause, Latest: e.ReceivedAt, ID: e.ID})
		}
		groups[i].Events++
	}
	slices.SortStableFunc(groups, func(a, b deadGroup) int { return b.Latest.Compare(a.Latest) })
	return groups
}

func printDead(w io.Writer, groups []deadGroup) {
	if len(groups) == 0 {
		fmt.Fprintln(w, "no dead letters")
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "EVENTS\tSOURCE\tLATEST\tLATEST ID\tCAUSE")
	for _, g := range groups {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", g.Events, g.Source, g.Latest.Format("2006-01-02 15:04:05"), g.ID, g.Cause)
	}
	t.Flush()
}
