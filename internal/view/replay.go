package view

import (
	"context"
	"slices"

	"ichido.dev/ichido"
)

// Replayed is what a replay did, or would do.
type Replayed struct {
	DryRun  bool      `json:"dry_run"`
	Matched int       `json:"matched"`
	Events  int       `json:"events"`  // that are worked again
	Skipped []Skipped `json:"skipped"` // that are not, by reason
}

// Skipped is events that are not replayed for the same reason.
type Skipped struct {
	Reason string `json:"reason"`
	Events int    `json:"events"`
	ID     string `json:"id,omitempty"` // of one of them, the newest
}

// Why an event that was asked for is not replayed.
const (
	notFound    = "there is no such event"
	overLimit   = "over the limit"
	inMeanwhile = "changed in the meantime"
)

// Replay has the events that f selects worked again, or only counts them, and
// says which were not and why. With an error, what it returns is what was done
// until then. Where f names one event that cannot be replayed, the error is
// the archive's.
func Replay(ctx context.Context, a ichido.Archive, f ichido.Filter, dryRun bool) (Replayed, error) {
	r := Replayed{DryRun: dryRun, Skipped: []Skipped{}}
	all, fit := f, 0
	all.Limit = 0
	err := Each(ctx, a, all, func(rec *ichido.Record) {
		r.Matched++
		if reason := whyNot(rec); reason != "" {
			r.skip(Skipped{reason, 1, rec.ID()})
		} else {
			fit++
		}
	})
	if err != nil {
		return r, err
	}
	if f.ID != "" && r.Matched == 0 {
		r.skip(Skipped{notFound, 1, f.ID})
	}
	if r.Events, err = a.Replay(ctx, f, dryRun); err != nil {
		return r, err
	}
	switch left := fit - r.Events; {
	case left > 0 && r.Events == f.Limit:
		r.skip(Skipped{Reason: overLimit, Events: left})
	case left > 0:
		r.skip(Skipped{Reason: inMeanwhile, Events: left})
	case left < 0: // more came
		r.Matched -= left
	}
	return r, nil
}

// Add counts what another replay did.
func (r *Replayed) Add(other Replayed) {
	r.Matched += other.Matched
	r.Events += other.Events
	for _, s := range other.Skipped {
		r.skip(s)
	}
}

// Left returns how many of the events that were asked for are not replayed.
func (r *Replayed) Left() (n int) {
	for _, s := range r.Skipped {
		n += s.Events
	}
	return n
}

func (r *Replayed) skip(s Skipped) {
	i := slices.IndexFunc(r.Skipped, func(known Skipped) bool { return known.Reason == s.Reason })
	if i < 0 {
		r.Skipped = append(r.Skipped, s)
		return
	}
	r.Skipped[i].Events += s.Events
}

// whyNot says why a record is not replayed, "" when it is.
func whyNot(r *ichido.Record) string {
	switch {
	case r.State == ichido.Pending:
		return "pending: worked when its source is configured"
	case r.State == ichido.Claimed:
		return "claimed: it is worked now"
	case r.State == ichido.Quarantined:
		return "quarantined: it is not an event"
	case r.Outcome == ichido.Split:
		return "split: its events are stored beside it"
	case r.Purged:
		return "its body is not kept any more"
	}
	return ""
}
