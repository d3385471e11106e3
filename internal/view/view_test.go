package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// fill stores n records in a state, all received at the same moment, and
// returns the store.
func fill(t *testing.T, s *memory.Store, state ichido.State, n int) []ichido.Record {
	t.Helper()
	records := make([]ichido.Record, n)
	for i := range records {
		r := &records[i]
		*r = ichido.Record{Source: "a", Key: fmt.Sprint(state, i), State: state, ReceivedAt: time.UnixMilli(1), Body: []byte("{}")}
		copy(r.Hash[:], r.Key)
	}
	if n == 0 {
		return nil
	}
	if _, err := s.Put(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestPagesShowEveryEventOnceAndTheLastOneSaysSo: events are received in the
// same moment, so nothing but their order in the store tells them apart.
func TestPagesShowEveryEventOnceAndTheLastOneSaysSo(t *testing.T) {
	for _, test := range []struct{ events, limit, pages int }{
		{0, 3, 1},
		{2, 3, 1},
		{3, 3, 1},
		{4, 3, 2},
		{6, 3, 2},
		{7, 3, 3},
		{7, 1, 7},
		{50, 0, 1},
		{51, 0, 2},
	} {
		s := memory.New(memory.Options{})
		fill(t, s, ichido.Pending, test.events)
		var seen []int64
		f, pages := ichido.Filter{Limit: test.limit}, 0
		for more := true; more && pages <= test.pages; pages++ {
			page, err := Page(t.Context(), s, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				seen = append(seen, e.Seq)
			}
			f.Before, more = page.Before, page.Before != 0
		}
		var want []int64
		for seq := test.events; seq > 0; seq-- {
			want = append(want, int64(seq))
		}
		if diff := cmp.Diff(want, seen); diff != "" || pages != test.pages {
			t.Errorf("%d events by %d: %d pages, want %d (-want +got):\n%s", test.events, test.limit, pages, test.pages, diff)
		}
	}
}

func TestEachVisitsEveryRecordAndNoMoreThanTheLimit(t *testing.T) {
	s := memory.New(memory.Options{})
	fill(t, s, ichido.Pending, 2*batchSize+1)
	for limit, want := range map[int]int{
		0: 2*batchSize + 1, 1: 1, batchSize: batchSize, batchSize + 1: batchSize + 1, 2 * batchSize: 2 * batchSize, 3 * batchSize: 2*batchSize + 1,
	} {
		seen := map[int64]bool{}
		if err := Each(t.Context(), s, ichido.Filter{Limit: limit}, func(r *ichido.Record) { seen[r.Seq] = true }); err != nil {
			t.Fatal(err)
		}
		if len(seen) != want {
			t.Errorf("with limit %d it visited %d records, want %d", limit, len(seen), want)
		}
	}
}

func TestReplaySaysWhatWasLeftAndWhy(t *testing.T) {
	s := memory.New(memory.Options{})
	fill(t, s, ichido.Done, 2)
	if _, _, err := s.Purge(t.Context(), "a", time.Now().Add(time.Hour), time.Time{}); err != nil {
		t.Fatal(err)
	}
	purged, err := s.List(t.Context(), ichido.Filter{})
	if err != nil || !purged[0].Purged {
		t.Fatalf("%v; nothing was purged: %+v", err, purged)
	}
	quarantined := fill(t, s, ichido.Quarantined, 1)
	pending := fill(t, s, ichido.Pending, 1)
	fit := make([]ichido.Record, 3)
	for i := range fit {
		fit[i] = ichido.Record{Source: "a", Key: fmt.Sprint("fit", i), State: ichido.Done, Outcome: ichido.Ignored, Body: []byte("{}")}
		copy(fit[i].Hash[:], fit[i].Key)
	}
	split := ichido.Record{Source: "a", Key: "split", State: ichido.Done, Outcome: ichido.Split, Hash: [16]byte{1}, Body: []byte("{}")}
	if _, err := s.Put(t.Context(), append(slices.Clone(fit), split)); err != nil {
		t.Fatal(err)
	}
	want := Replayed{DryRun: true, Matched: 8, Events: 3, Skipped: []Skipped{
		{"split: its events are stored beside it", 1, split.ID()},
		{"pending: worked when its source is configured", 1, pending[0].ID()},
		{"quarantined: it is not an event", 1, quarantined[0].ID()},
		{"its body is not kept any more", 2, purged[0].ID()},
	}}
	for _, step := range []struct {
		name   string
		filter ichido.Filter
		want   Replayed
		err    error
	}{
		{"by source", ichido.Filter{Source: "a"}, want, nil},
		{"at most two", ichido.Filter{Source: "a", Limit: 2}, Replayed{true, 8, 2, append(slices.Clone(want.Skipped), Skipped{overLimit, 1, ""})}, nil},
		{"another source", ichido.Filter{Source: "b"}, Replayed{true, 0, 0, []Skipped{}}, nil},
		{"by id", ichido.Filter{ID: fit[0].ID()}, Replayed{true, 1, 1, []Skipped{}}, nil},
		{"without a body", ichido.Filter{ID: purged[0].ID()}, Replayed{true, 1, 0, []Skipped{{want.Skipped[3].Reason, 1, purged[0].ID()}}}, ichido.ErrBodyPurged},
		{"pending", ichido.Filter{ID: pending[0].ID()}, Replayed{true, 1, 0, []Skipped{want.Skipped[1]}}, ichido.ErrNotReplayable},
		{"no such event", ichido.Filter{ID: "ev_x"}, Replayed{true, 0, 0, []Skipped{{notFound, 1, "ev_x"}}}, ichido.ErrNotFound},
	} {
		for _, dryRun := range []bool{true, false} {
			if !dryRun && step.err == nil && step.filter.Source != "b" {
				continue // would change what the next step finds
			}
			step.want.DryRun = dryRun
			got, err := Replay(t.Context(), s, step.filter, dryRun)
			if diff := cmp.Diff(step.want, got); diff != "" || !errors.Is(err, step.err) {
				t.Errorf("%s, dry run %t: error %v, want %v (-want +got):\n%s", step.name, dryRun, err, step.err, diff)
			}
		}
	}
	want.DryRun = false
	if got, err := Replay(t.Context(), s, ichido.Filter{Source: "a"}, false); err != nil || !cmp.Equal(got, want) {
		t.Errorf("replayed: %v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
}

// halfway is an archive that fails after it replayed one event.
type halfway struct{ ichido.Archive }

func (halfway) Replay(context.Context, ichido.Filter, bool) (int, error) {
	return 1, errors.New("disk gone")
}

func TestReplayThatFailsSaysWhatItDid(t *testing.T) {
	s := memory.New(memory.Options{})
	fill(t, s, ichido.Done, 3)
	got, err := Replay(t.Context(), halfway{s}, ichido.Filter{Source: "a"}, false)
	if err == nil || got.Matched != 3 || got.Events != 1 {
		t.Errorf("it says %+v, error %v; want 1 of 3 and the error", got, err)
	}
}

// TestAppliedEventRanAtLeastOnce: what was applied during the request is
// stored with no attempt, because no worker claimed it.
func TestAppliedEventRanAtLeastOnce(t *testing.T) {
	for _, test := range []struct {
		record ichido.Record
		want   int
	}{
		{ichido.Record{State: ichido.Done, Outcome: ichido.Applied}, 1},
		{ichido.Record{State: ichido.Done, Outcome: ichido.Applied, Attempts: 3}, 3},
		{ichido.Record{State: ichido.Done, Outcome: ichido.Ignored}, 0},
		{ichido.Record{State: ichido.Pending}, 0},
	} {
		if got := OfRecord(&test.record).Attempts; got != test.want {
			t.Errorf("%s/%s after %d counted attempts: shown %d, want %d", test.record.State, test.record.Outcome, test.record.Attempts, got, test.want)
		}
	}
}
