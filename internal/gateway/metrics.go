package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ichido.dev/ichido"
)

// statsEvery is how old counts of what is stored may be when they are shown:
// counting reads every event.
const statsEvery = 10 * time.Second

// stocktaker counts what is stored, at most once every statsEvery.
type stocktaker struct {
	archive ichido.Archive
	mu      sync.Mutex
	at      time.Time    // of stats; guarded by mu
	stats   ichido.Stats // guarded by mu
}

// take returns counts, or why there are none now. An error is not kept: it may
// be only that of the caller's context.
func (s *stocktaker) take(ctx context.Context) (ichido.Stats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) <= statsEvery {
		return s.stats, nil
	}
	stats, err := s.archive.Stats(ctx)
	if err != nil {
		return ichido.Stats{}, err
	}
	s.stats, s.at = stats, time.Now()
	return stats, nil
}

// stock is the collector of what is stored.
type stock struct {
	taker     *stocktaker
	admission *ichido.Admission
	events    *prometheus.Desc
	oldest    *prometheus.Desc
	claims    *prometheus.Desc
	purged    *prometheus.Desc
	reading   *prometheus.Desc
	up        *prometheus.Desc
}

func newStock(taker *stocktaker, a *ichido.Admission) *stock {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &stock{
		taker: taker, admission: a,
		events:  desc("ichido_events", "Events stored, by source and state.", "source", "state"),
		oldest:  desc("ichido_oldest_due_seconds", "Age of the oldest event that is due; 0 when there is none."),
		claims:  desc("ichido_inline_claims_held", "Inline claims that are held, or whose owner is gone."),
		purged:  desc("ichido_purged_total", "Records removed since the store was made."),
		reading: desc("ichido_reading_bytes", "Memory reserved for bodies that are being read."),
		up:      desc("ichido_store_up", "1 when the store could be counted; 0, and no counts, when not."),
	}
}

// Describe sends the descriptions of the metrics.
func (s *stock) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.events, s.oldest, s.claims, s.purged, s.reading, s.up} {
		c <- d
	}
}

// Collect counts what is stored.
func (s *stock) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(s.reading, float64(s.admission.InUse()))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stats, err := s.taker.take(ctx)
	if err != nil {
		gauge(s.up, 0)
		return
	}
	gauge(s.up, 1)
	for source, states := range stats.Counts {
		for state, n := range states {
			gauge(s.events, float64(n), source, string(state))
		}
	}
	age := 0.0
	if !stats.Oldest.IsZero() {
		age = max(time.Since(stats.Oldest).Seconds(), 0)
	}
	gauge(s.oldest, age)
	gauge(s.claims, float64(stats.Pending))
	c <- prometheus.MustNewConstMetric(s.purged, prometheus.CounterValue, float64(stats.Purged))
}
