package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
)

// Failer is the part of testing.TB that [Walk] needs.
type Failer interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Walk makes the same random calls to a model and to a store under test, both
// on one clock, and fails at the first difference. draw chooses: it returns a
// number from 0 to n-1, and is told what for. A failing walk is as good as
// its draws: give it those of a property-testing library, which shrinks them.
func Walk(f Failer, tb testing.TB, draw func(label string, n int) int, steps int, model, subject *Store, clock *Clock) {
	f.Helper()
	w := &walk{Failer: f, tb: tb, draw: draw, model: model, subject: subject, clock: clock, ctx: context.Background()}
	actions := []struct {
		name string
		run  func()
	}{
		{"put", w.put},
		{"put", w.put},
		{"claim", w.claim},
		{"claim", w.claim},
		{"settle", w.settle},
		{"settle", w.settle},
		{"extend", w.extend},
		{"mark", w.mark},
		{"advance", w.advance},
		{"die", w.die},
		{"replay", w.replay},
		{"purge", w.purge},
		{"crash", w.crash},
	}
	for range steps {
		a := actions[draw("action", len(actions))]
		f.Logf("%s", a.name)
		a.run()
		w.compare()
	}
}

type walk struct {
	Failer
	tb             testing.TB
	ctx            context.Context
	draw           func(label string, n int) int
	model, subject *Store
	clock          *Clock

	held   []pair // every record that was ever claimed, by a process that lives
	tokens uint64 // given to records that are put as claimed
}

// pair is one claimed record as the model and as the subject gave it.
type pair struct{ model, subject ichido.Record }

// equal fails unless both stores gave the same.
func (w *walk) equal(what string, model, subject any) {
	w.Helper()
	if diff := cmp.Diff(model, subject); diff != "" {
		w.Fatalf("%s (-model +store):\n%s", what, diff)
	}
}

// ok fails when a call failed that cannot.
func (w *walk) ok(what string, model, subject error) {
	w.Helper()
	if model != nil || subject != nil {
		w.Fatalf("%s: model %v, store %v", what, model, subject)
	}
}

func (w *walk) put() {
	var records []ichido.Record
	for range 1 + w.draw("records", 3) {
		source := []string{"a", "b"}[w.draw("source", 2)]
		key := fmt.Sprint("key", w.draw("key", 6))
		body := fmt.Sprint("body of ", key)
		if w.draw("forged", 4) == 0 {
			body = "forged"
		}
		r := NewRecord(source, key, body, w.clock.Now())
		r.State = []ichido.State{ichido.Pending, ichido.Pending, ichido.Claimed, ichido.Done, ichido.Quarantined}[w.draw("state", 5)]
		r.Purged = r.State == ichido.Done && w.draw("without a body", 2) == 0
		if r.State == ichido.Claimed {
			w.tokens++
			r.Token, r.Lease = w.tokens, time.Minute
		}
		records = append(records, r)
	}
	theirs := slices.Clone(records)
	m, merr := w.model.Queue.Put(w.ctx, theirs)
	s, serr := w.subject.Queue.Put(w.ctx, records)
	w.ok("put", merr, serr)
	w.equal("verdicts", m, s)
	for i := range records {
		if m[i] == ichido.Accepted && records[i].State == ichido.Claimed {
			w.held = append(w.held, pair{theirs[i], records[i]})
		}
	}
}

func (w *walk) claim() {
	want := ichido.Want{
		Slots:    map[string]int{"a": w.draw("slots of a", 4), "b": w.draw("slots of b", 4)},
		Bytes:    int64([]int{0, 0, 20, 1}[w.draw("bytes", 4)]),
		Lease:    time.Duration(1+w.draw("lease", 3)) * time.Minute,
		Suspects: map[string]bool{"a": w.draw("suspect of a", 2) == 0, "b": w.draw("suspect of b", 2) == 0},
	}
	m, merr := w.model.Queue.Claim(w.ctx, want)
	s, serr := w.subject.Queue.Claim(w.ctx, want)
	w.ok("claim", merr, serr)
	w.equal("claimed", plain(m), plain(s))
	for i := range m {
		w.held = append(w.held, pair{m[i], s[i]})
	}
}

// some draws a few of the records that were ever claimed, the newest most.
func (w *walk) some() (chosen []pair) {
	for range 1 + w.draw("claims", 3) {
		if len(w.held) > 0 {
			chosen = append(chosen, w.held[len(w.held)-1-w.draw("claim", min(len(w.held), 6))])
		}
	}
	return chosen
}

func (w *walk) settle() {
	var m, s []ichido.Settlement
	for _, p := range w.some() {
		end := ichido.Settlement{
			State:    []ichido.State{ichido.Done, ichido.Done, ichido.Pending, ichido.Dead, ichido.Quarantined}[w.draw("end", 5)],
			Outcome:  ichido.Applied,
			Cause:    "cause",
			After:    time.Duration(w.draw("after", 3)) * time.Minute,
			GiveBack: w.draw("give back", 2) == 0,
		}
		if w.draw("confirmed", 4) == 0 {
			end.Confirmed = []byte("state")
		}
		end.Record = &p.model
		m = append(m, end)
		end.Record = &p.subject
		s = append(s, end)
	}
	merrs, merr := w.model.Queue.Settle(w.ctx, m)
	serrs, serr := w.subject.Queue.Settle(w.ctx, s)
	w.ok("settle", merr, serr)
	w.equal("lost", lost(merrs), lost(serrs))
}

func (w *walk) extend() {
	var m, s []*ichido.Record
	for _, p := range w.some() {
		m, s = append(m, &p.model), append(s, &p.subject)
	}
	d := time.Duration(1+w.draw("extension", 3)) * time.Minute
	merrs, merr := w.model.Queue.Extend(w.ctx, m, d)
	serrs, serr := w.subject.Queue.Extend(w.ctx, s, d)
	w.ok("extend", merr, serr)
	w.equal("lost", lost(merrs), lost(serrs))
}

func (w *walk) mark() {
	for _, p := range w.some() {
		running := w.draw("running", 2) == 0
		w.model.Queue.Mark(&p.model, running)
		w.subject.Queue.Mark(&p.subject, running)
	}
}

// die claims, and lets all leases end while the handlers of what was claimed
// run: of two such steps in a row come suspects.
func (w *walk) die() {
	before := len(w.held)
	w.claim()
	for _, p := range w.held[before:] {
		w.model.Queue.Mark(&p.model, true)
		w.subject.Queue.Mark(&p.subject, true)
	}
	w.clock.Advance(3 * time.Minute)
}

func (w *walk) advance() {
	w.clock.Advance(time.Duration(1+w.draw("minutes", 3)) * time.Minute / 2)
}

func (w *walk) replay() {
	f := ichido.Filter{
		Source: []string{"", "a"}[w.draw("source", 2)],
		State:  []ichido.State{"", ichido.Done, ichido.Dead}[w.draw("state", 3)],
		Limit:  w.draw("limit", 3),
	}
	if w.draw("one", 3) == 0 {
		r := NewRecord("a", fmt.Sprint("key", w.draw("key", 6)), "", w.clock.Now())
		f.ID = r.ID()
	}
	dry := w.draw("dry run", 2) == 0
	m, merr := w.model.Archive.Replay(w.ctx, f, dry)
	s, serr := w.subject.Archive.Replay(w.ctx, f, dry)
	w.equal("replayed", m, s)
	for _, err := range []error{ichido.ErrNotFound, ichido.ErrBodyPurged, ichido.ErrNotReplayable} {
		w.equal(err.Error(), errors.Is(merr, err), errors.Is(serr, err))
	}
}

func (w *walk) purge() {
	cutoff := func() time.Time {
		ago := w.draw("cutoff", 4)
		if ago == 0 {
			return time.Time{}
		}
		return w.clock.Now().Add(-time.Duration(ago-1) * time.Minute)
	}
	bodies, keys := cutoff(), cutoff()
	mBodies, mKeys, merr := w.model.Archive.Purge(w.ctx, "a", bodies, keys)
	sBodies, sKeys, serr := w.subject.Archive.Purge(w.ctx, "a", bodies, keys)
	w.ok("purge", merr, serr)
	w.equal("purged", []int{mBodies, mKeys}, []int{sBodies, sKeys})
}

func (w *walk) crash() {
	if w.subject.Crash != nil && w.draw("really", 3) == 0 {
		w.subject = w.subject.Crash(w.tb)
		w.held = nil               // nobody works any more
		w.clock.Advance(time.Hour) // some stores need not wait for the leases to end
	}
}

// compare fails unless everything that can be seen is the same.
func (w *walk) compare() {
	w.Helper()
	m, merr := w.model.Archive.List(w.ctx, ichido.Filter{Limit: 100})
	s, serr := w.subject.Archive.List(w.ctx, ichido.Filter{Limit: 100})
	w.ok("list", merr, serr)
	w.equal("events", plain(m), plain(s))
	for i := range m {
		full := m[i]
		m, merr := w.model.Archive.Get(w.ctx, full.ID())
		s, serr := w.subject.Archive.Get(w.ctx, full.ID())
		w.ok("get", merr, serr)
		w.equal("event", plain([]ichido.Record{m}), plain([]ichido.Record{s}))
	}
	mStats, merr := w.model.Archive.Stats(w.ctx)
	sStats, serr := w.subject.Archive.Stats(w.ctx)
	w.ok("stats", merr, serr)
	w.equal("stats", mStats, sStats)
}

// plain removes what stores choose freely.
func plain(records []ichido.Record) []ichido.Record {
	out := make([]ichido.Record, len(records))
	for i, r := range records {
		r.Seq = 0
		r.Token = min(r.Token, 1)
		r.Started = false // shown in Deaths, once it counts
		out[i] = r
	}
	return out
}

func lost(errs []error) []bool {
	out := make([]bool, len(errs))
	for i, err := range errs {
		out[i] = errors.Is(err, ichido.ErrLeaseLost)
	}
	return out
}
