package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ichido.dev/ichido"
)

const (
	statsEvery = 10 * time.Second // how old counts may be when they are shown: counting reads every event
	statsFor   = 30 * time.Second // how long counting may take
	scrapeFor  = 5 * time.Second  // how long a scrape waits for it
)

// stocktaker counts what is stored, at most once every statsEvery, and once
// for all who ask meanwhile.
type stocktaker struct {
	archive ichido.Archive
	mu      sync.Mutex
	at      time.Time    // of stats, zero when the last counting failed; guarded by mu
	began   time.Time    // when that counting began; guarded by mu
	stats   ichido.Stats // guarded by mu
	running *counting    // nil when there is none; guarded by mu
}

// counting is one count that is under way. Its results are set when done is
// closed.
type counting struct {
	cancel context.CancelFunc
	done   chan struct{}
	began  time.Time
	stats  ichido.Stats
	err    error
}

// take returns counts, or why there are none. It waits for them until ctx ends;
// the counting goes on then, for the others and for whoever asks next.
func (s *stocktaker) take(ctx context.Context) (ichido.Stats, error) {
	s.mu.Lock()
	if !s.at.IsZero() && time.Since(s.at) <= statsEvery {
		defer s.mu.Unlock()
		return s.stats, nil
	}
	c := s.running
	if c == nil {
		c = s.start(ctx)
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.stats, c.err
	case <-ctx.Done():
		return ichido.Stats{}, fmt.Errorf("count events: %w", ctx.Err())
	}
}

// start counts in a goroutine that [stocktaker.end] ends. The caller holds mu.
func (s *stocktaker) start(ctx context.Context) *counting {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsFor)
	c := &counting{cancel: cancel, done: make(chan struct{}), began: time.Now()}
	s.running = c
	go func() {
		defer cancel()
		c.stats, c.err = s.archive.Stats(ctx)
		s.mu.Lock()
		s.running, s.stats, s.at, s.began = nil, c.stats, time.Now(), c.began
		if c.err != nil {
			s.at = time.Time{} // an error is not kept
		}
		s.mu.Unlock()
		close(c.done)
	}()
	return c
}

// last returns the counts of the last time, however old, unless counting
// failed then.
func (s *stocktaker) last() (stats ichido.Stats, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats, !s.at.IsZero()
}

// countedAt returns a time that the counts shown last are not older than.
func (s *stocktaker) countedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began
}

// end ends a counting that is under way, and waits for it.
func (s *stocktaker) end() {
	s.mu.Lock()
	c := s.running
	s.mu.Unlock()
	if c != nil {
		c.cancel()
		<-c.done
	}
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
	ctx, cancel := context.WithTimeout(context.Background(), scrapeFor)
	defer cancel()
	stats, err := s.taker.take(ctx)
	known := err == nil
	if ctx.Err() != nil && !known { // counting takes long: it is not known to fail
		stats, known = s.taker.last()
	}
	if !known {
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
