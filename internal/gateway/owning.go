package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
)

// own makes this process the one that works the events of the store, where a
// configuration has any to work: a second server must not accept what nobody
// of its own would work, and each would take the running handlers of the other
// for those of a process that is gone.
func (g *Gateway) own(s *snapshot) error {
	if !s.worked {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	_, err := g.opts.Store.Claim(ctx, ichido.Want{Lease: time.Second}) // claims nothing, for it has no slots
	var e *ichido.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Cause == "locked":
		return fmt.Errorf("%w; stop the other one, or give this one another store: --store", e.Err)
	}
	return fmt.Errorf("take over the events of the store: %w", err)
}

const ownTimeout = 30 * time.Second

// warn logs what is no problem of a configuration, and not as it should be.
func (g *Gateway) warn(file *config.File) {
	for _, text := range file.Warnings() {
		g.log.Warn(text)
	}
}

// warnOfOrphans logs the sources that have events to work and are not in the
// configuration in force: renamed or removed, or misspelt.
func (g *Gateway) warnOfOrphans(ctx context.Context) {
	stats, err := g.archive.Stats(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("events of sources that are not configured were not looked for", "error", err)
		}
		return
	}
	endpoints := g.current.Load().endpoints
	for _, name := range slices.Sorted(maps.Keys(stats.Counts)) {
		pending := stats.Counts[name][ichido.Pending] + stats.Counts[name][ichido.Claimed]
		configured := slices.ContainsFunc(endpoints, func(e *endpoint) bool { return e.name == name })
		if pending > 0 && !configured {
			g.log.Warn(fmt.Sprintf("source %s has %d pending events and is not configured: they wait", name, pending), "source", name, "pending", pending)
		}
	}
}
