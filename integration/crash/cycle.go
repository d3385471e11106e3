package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"ichido.dev/ichido/integration/internal/subject"
)

// campaign is the cycles against one target.
type campaign struct {
	t        *target
	o        *oracle
	load     *load
	auditor  *auditor
	dest     *destination // nil for the ledger
	rng      *rand.Rand
	sabotage string // part of every fault plan
	perCycle int    // new events in one cycle, at most
	out      io.Writer

	hits    map[string]int // kills at each named point
	random  int            // kills at a random time
	missed  int            // named points that were not reached in time
	slowest time.Duration  // from start to ready

	finalRows int
}

// How one cycle ends.
type ending struct {
	point    string // named point, "" for none
	hit      int
	after    time.Duration // random: since the process was started
	answer   int           // random: when this answer arrives
	forward  int           // the destination kills at this forward
	answered bool          // after its answer
}

const (
	readyIn   = 5 * time.Second // I9
	longCycle = 3 * time.Second // after that a point counts as missed
)

// choose draws how the n-th cycle ends: a third at random times with the
// binary as people run it, the others at named points, in turn. A broken build
// is killed at random times only.
func (c *campaign) choose(n int) ending {
	switch {
	case n%6 == 0 || c.sabotage != "":
		return ending{answer: 1 + c.rng.IntN(2*c.perCycle)}
	case n%6 == 3:
		return ending{after: time.Duration(c.rng.Int64N(int64(2400 * time.Millisecond)))}
	case n%10 == 1 && c.dest != nil:
		return ending{forward: 1 + c.rng.IntN(200), answered: n%20 == 1}
	}
	point := c.t.points[(n-n/3)%len(c.t.points)]
	return ending{point: point, hit: 1 + c.rng.IntN(hitsOf(point, c.perCycle))}
}

// hitsOf returns how often a point is passed in a cycle of so many events,
// roughly: commits and claims are shared by several of them.
func hitsOf(point string, events int) int {
	switch strings.TrimPrefix(strings.TrimPrefix(point, "before-"), "after-") {
	case "insert-event", "insert-body", "effect":
		return max(events*3/4, 1)
	case "purge-body", "purge-mark", "purge-event", "count", "checkpoint", "commit+purge-body":
		return 1
	case "claim", "commit+claim", "choose":
		return 2
	case "settle", "commit+settle", "keep", "commit+keep":
		return max(events/80, 1)
	}
	return max(events/10, 1)
}

func (e ending) plan() string {
	if e.point == "" {
		return ""
	}
	return fmt.Sprintf("kill:%s:%d", e.point, e.hit)
}

// cycle starts the target, audits what the cycle before left, loads it until
// it dies, and returns.
func (c *campaign) cycle(ctx context.Context, n int) error {
	e := c.choose(n)
	plan := e.plan()
	if c.sabotage != "" && plan != "" {
		plan += ","
	}
	p, err := c.t.start(plan + c.sabotage)
	if err != nil {
		return err
	}
	defer p.Kill()
	c.o.begin()
	if e.after > 0 {
		timer := time.AfterFunc(e.after, p.Kill)
		defer timer.Stop()
	}
	took, err := p.WaitReady(c.t.readyURL(), 2*readyIn)
	switch {
	case subject.IsGone(err):
		return c.ended(p, e) // killed before it was ready, which is as good
	case err != nil || took > readyIn:
		c.o.violate("I9: cycle %d: ready after %s: %v", n, took, err)
		return nil
	}
	c.slowest = max(c.slowest, took)
	if err := c.audit(p); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	if e.forward > 0 {
		kill := p.Kill
		c.dest.after.Store(e.answered)
		c.dest.countdown.Store(int64(e.forward))
		c.dest.kill.Store(&kill)
		defer c.dest.kill.Store(nil)
	}
	c.load.killAt(e.answer, p.Kill)
	go func() {
		select {
		case <-p.Ended():
		case <-time.After(longCycle):
		}
		stop()
	}()
	if err := c.load.run(loading, c.perCycle); err != nil {
		return err
	}
	return c.ended(p, e)
}

// audit checks the invariants while the process serves.
func (c *campaign) audit(p *subject.Process) error {
	a := c.auditor
	fresh, err := openAuditor(c.t, c.o)
	if err != nil {
		return err
	}
	fresh.seen, fresh.rows = a.seen, a.rows
	err = fresh.check()
	if cerr := fresh.release(); err == nil {
		err = cerr
	}
	select {
	case <-p.Ended(): // what was read may be half of it
		if err != nil {
			return nil
		}
	default:
	}
	c.auditor = fresh
	return err
}

// ended counts how the process ended, and kills it if it has not.
func (c *campaign) ended(p *subject.Process, e ending) error {
	missed := false
	select {
	case <-p.Ended():
	case <-time.After(50 * time.Millisecond):
		missed = e.point != "" || e.forward > 0
		p.Kill()
	}
	if !p.Killed() {
		c.o.violate("the process ended by itself with exit code %d; its output is in %s", p.ExitCode(), c.t.logs)
	}
	switch {
	case missed:
		c.missed++
	case e.point != "":
		c.hits[e.point]++
	case e.forward > 0 && e.answered:
		c.hits["after-forward-answered"]++
	case e.forward > 0:
		c.hits["before-forward-answered"]++
	default:
		c.random++
	}
	return c.o.log.sync()
}

// births kills the target while it makes its database, in a folder of its
// own each time, and checks that the next start finds its way.
func (c *campaign) births(work string) error {
	for i, point := range birthPoints() {
		infant := *c.t
		infant.name = fmt.Sprintf("%s-birth-%d", c.t.name, i)
		if err := infant.place(work); err != nil {
			return err
		}
		p, err := infant.start("kill:" + point + ":1")
		if err != nil {
			return err
		}
		_, err = p.WaitReady(infant.readyURL(), readyIn)
		if !subject.IsGone(err) || !p.Killed() {
			p.Kill()
			c.o.violate("the first start was not killed at %s", point)
		}
		c.hits[point]++
		if p, err = infant.start(""); err != nil {
			return err
		}
		if _, err = p.WaitReady(infant.readyURL(), readyIn); err != nil {
			c.o.violate("I9: no start after a kill at %s: %v", point, err)
		}
		p.Kill()
		if err := os.RemoveAll(infant.dir); err != nil {
			return err
		}
	}
	return nil
}
