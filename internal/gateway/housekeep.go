package gateway

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"ichido.dev/ichido/internal/config"
)

const (
	purgeEvery  = 10 * time.Minute
	reloadEvery = 5 * time.Second
)

// housekeep purges what is past its retention, until ctx ends. Before, it says
// whose events nobody works; that is not done at the start, for counting reads
// every event.
func (g *Gateway) housekeep(ctx context.Context) {
	g.warnOfOrphans(ctx)
	ticker := time.NewTicker(purgeEvery)
	defer ticker.Stop()
	for {
		g.purge(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// purge removes what is past its retention. Of a source that is no longer
// configured only bodies go, by the general retention: how long its sender may
// send an event again is not known, so its keys stay.
func (g *Gateway) purge(ctx context.Context) {
	now := time.Now()
	s := g.current.Load()
	for _, e := range s.endpoints {
		g.purgeSource(ctx, e.name, e.keepBodies.Before(now), e.keepKeys.Before(now))
	}
	stats, err := g.stock.take(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Error("look for events of sources that are not configured, to purge them", "error", err)
		}
		return
	}
	for _, name := range s.orphans(stats) {
		g.purgeSource(ctx, name, s.file.Retention.Bodies.Before(now), time.Time{})
	}
}

func (g *Gateway) purgeSource(ctx context.Context, name string, beforeBodies, beforeKeys time.Time) {
	bodies, keys, err := g.archive.Purge(ctx, name, beforeBodies, beforeKeys)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		g.log.Error("purge events", "source", name, "error", err)
	case bodies+keys > 0:
		g.log.Info("purged", "source", name, "bodies", bodies, "keys", keys)
	}
}

// limiter returns whether one more is within the rate; nil for no limit. Its
// burst is one second's worth.
func limiter(r config.Rate) func() bool {
	if r == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(r), max(int(r), 1)).Allow
}
