package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report prints what a campaign did and found.
func (c *campaign) report(cycles int, settled, took time.Duration) {
	o := c.o
	o.mu.Lock()
	defer o.mu.Unlock()
	named := 0
	for _, n := range c.hits {
		named += n
	}
	fmt.Fprintf(c.out, "%s: %d cycles in %s: %d kills at %d named points, %d at random times, %d points not reached in time\n",
		c.t.name, cycles, took.Round(time.Second), named, len(c.hits), c.random, c.missed)
	fmt.Fprintf(c.out, "  %d events acknowledged, %d duplicates answered, %d conflicts, %d forgeries, %d answers 503, %d forwards, %d rows at the end\n",
		o.acked, o.duplicates, o.conflicts, o.forgeries, o.refused, o.forwards, c.finalRows)
	fmt.Fprintf(c.out, "  slowest start %s; everything settled %s after the last start; violations: %d\n",
		c.slowest.Round(time.Millisecond), settled.Round(time.Millisecond), len(o.violations))
	var points []string
	for _, name := range slices.Sorted(maps.Keys(c.hits)) {
		points = append(points, fmt.Sprintf("%s %d", name, c.hits[name]))
	}
	fmt.Fprintf(c.out, "  killed at: %s\n", strings.Join(points, ", "))
}
