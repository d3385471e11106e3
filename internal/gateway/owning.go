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

// orphans returns the sources that have events and are not in the
// configuration: renamed or removed, or misspelt.
func (s *snapshot) orphans(stats ichido.Stats) []string {
	names := slices.Sorted(maps.Keys(stats.Counts))
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(s.endpoints, func(e *endpoint) bool { return e.name == name })
	})
}

// warnOfOrphans logs what becomes of the events of sources that are not in the
// configuration in force.
func (g *Gateway) warnOfOrphans(ctx context.Context) {
	stats, err := g.archive.Stats(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("events of sources that are not configured were not looked for", "error", err)
		}
		return
	}
	for _, name := range g.current.Load().orphans(stats) {
		states := stats.Counts[name]
		if pending := states[ichido.Pending] + states[ichido.Claimed]; pending > 0 {
			g.log.Warn(fmt.Sprintf("source %s has %d pending events and is not configured: they wait", name, pending), "source", name, "pending", pending)
		}
		if done := states[ichido.Done]; done > 0 {
			g.log.Info(fmt.Sprintf("source %s has %d done events and is not configured: their bodies go by retention.bodies, their keys stay", name, done), "source", name, "done", done)
		}
	}
}
