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

func (g *Gateway) purge(ctx context.Context) {
	now := time.Now()
	for _, e := range g.current.Load().endpoints {
		bodies, forgotten, err := g.archive.Purge(ctx, e.name, e.keepBodies.Before(now), e.keepKeys.Before(now))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			g.log.Error("purge events", "source", e.name, "error", err)
			continue
		}
		if bodies+forgotten > 0 {
			g.log.Info("purged", "source", e.name, "bodies", bodies, "keys", forgotten)
		}
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
