package gateway

import (
	"context"
	"errors"
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

// TestCallerThatWentAwayFailsNobodyElse: the counts are shared, the error of
// one caller's context is not.
func TestCallerThatWentAwayFailsNobodyElse(t *testing.T) {
	archive := &counted{err: context.Canceled}
	s := &stocktaker{archive: archive}
	if _, err := s.take(t.Context()); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want %v", err, context.Canceled)
	}
	archive.err = nil
	if _, err := s.take(t.Context()); err != nil {
		t.Errorf("the next caller got %v", err)
	}
}
