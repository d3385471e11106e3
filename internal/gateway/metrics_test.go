package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"ichido.dev/ichido"
)

// counted is an archive that counts one pending event and one claim, or fails.
type counted struct {
	ichido.Archive
	err   error
	asked int
}

func (c *counted) Stats(context.Context) (ichido.Stats, error) {
	c.asked++
	if c.err != nil {
		return ichido.Stats{}, c.err
	}
	return ichido.Stats{Counts: map[string]map[ichido.State]int{"a": {ichido.Pending: 1}}, Pending: 1}, nil
}

// gather returns the values of what a stock collects, by name.
func gather(t *testing.T, s *stock) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
	}
	return values
}

// TestUncountedStoreShowsNoCounts: zeros would say that all is well.
func TestUncountedStoreShowsNoCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		archive := &counted{err: errors.New("disk gone")}
		s := newStock(&stocktaker{archive: archive}, &ichido.Admission{})
		failed := map[string]float64{"ichido_store_up": 0, "ichido_reading_bytes": 0}
		good := map[string]float64{
			"ichido_store_up": 1, "ichido_reading_bytes": 0, "ichido_events": 1, "ichido_oldest_due_seconds": 0,
			"ichido_inline_claims_held": 1, "ichido_purged_total": 0,
		}
		if diff := cmp.Diff(failed, gather(t, s)); diff != "" {
			t.Errorf("while it fails (-want +got):\n%s", diff)
		}
		archive.err = nil
		if diff := cmp.Diff(good, gather(t, s)); diff != "" {
			t.Errorf("as soon as it no longer fails (-want +got):\n%s", diff)
		}
		time.Sleep(statsEvery / 2)
		archive.err = errors.New("disk gone again")
		if diff := cmp.Diff(good, gather(t, s)); diff != "" || archive.asked != 2 {
			t.Errorf("counted %d times, want 2; within %s (-want +got):\n%s", archive.asked, statsEvery, diff)
		}
		time.Sleep(statsEvery)
		if diff := cmp.Diff(failed, gather(t, s)); diff != "" {
			t.Errorf("when counts are old and it fails (-want +got):\n%s", diff)
		}
	})
}

// slow is an archive whose counting takes a time, or until its context ends.
type slow struct {
	counted
	takes time.Duration
}

func (s *slow) Stats(ctx context.Context) (ichido.Stats, error) {
	stats, err := s.counted.Stats(ctx)
	select {
	case <-time.After(s.takes):
		return stats, err
	case <-ctx.Done():
		return ichido.Stats{}, ctx.Err()
	}
}

// TestWaitersForCountsShareOneAndLeaveOnTheirOwn: one who goes away fails
// nobody else, and one who waits long holds nobody up.
func TestWaitersForCountsShareOneAndLeaveOnTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		archive := &slow{takes: 20 * time.Second}
		s := &stocktaker{archive: archive}
		start := time.Now()
		var waiters sync.WaitGroup
		for patience, want := range map[time.Duration]error{
			time.Nanosecond: context.DeadlineExceeded, 7 * time.Second: context.DeadlineExceeded, time.Hour: nil, 2 * time.Hour: nil,
		} {
			waiters.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				stats, err := s.take(ctx)
				if waited := time.Since(start); !errors.Is(err, want) || waited != min(patience, archive.takes) || err == nil && stats.Pending != 1 {
					t.Errorf("who waits for %s got %+v, %v after %s", patience, stats, err, waited)
				}
			})
		}
		waiters.Wait()
		if _, err := s.take(t.Context()); err != nil || archive.asked != 1 {
			t.Errorf("afterwards: %v; counted %d times, want once", err, archive.asked)
		}
	})
}

// TestCountingHasAnEnd of its own, and one that ended is made again.
func TestCountingHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		archive := &slow{takes: time.Hour}
		s := &stocktaker{archive: archive}
		start := time.Now()
		if _, err := s.take(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != statsFor {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if _, found := s.last(); found {
			t.Error("there are counts although counting failed")
		}
		archive.takes = 0
		if _, err := s.take(t.Context()); err != nil {
			t.Errorf("the next one got %v", err)
		}
		time.Sleep(2 * statsEvery)
		archive.takes = time.Hour
		left, leave := context.WithCancel(t.Context())
		leave()
		s.take(left)
		start = time.Now()
		s.end()
		if s.running != nil || time.Since(start) != 0 {
			t.Errorf("the end of all counting took %s", time.Since(start))
		}
	})
}

// TestStoreThatIsCountedSlowlyIsUp, by the counts of the scrape before, until
// counting fails.
func TestStoreThatIsCountedSlowlyIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		archive := &slow{takes: 8 * time.Second}
		s := newStock(&stocktaker{archive: archive}, &ichido.Admission{})
		for i, want := range []float64{0, 1, 1, 1} {
			start := time.Now()
			if got := gather(t, s); got["ichido_store_up"] != want || got["ichido_events"] != want || time.Since(start) > scrapeFor {
				t.Errorf("scrape %d: %v after %s, want up %v", i+1, got, time.Since(start), want)
			}
			time.Sleep(time.Minute - time.Since(start))
		}
		synctest.Wait()
		archive.takes = time.Hour // it hangs
		for i, want := range []float64{1, 0, 0} {
			start := time.Now()
			if got := gather(t, s); got["ichido_store_up"] != want {
				t.Errorf("scrape %d of a store that hangs: %v, want up %v", i+1, got, want)
			}
			time.Sleep(time.Minute - time.Since(start))
		}
	})
}
