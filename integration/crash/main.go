// Crash kills the real binary again and again, at random times and at named
// points, while senders send, and watches from outside what survives. It ends
// with exit code 1 when anything that was promised does not hold, or when a
// build that breaks a promise is not caught.
//
// It does not test power loss: what a killed process wrote is still in the
// kernel. That is what powerloss is for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// options are the size of a run.
type options struct {
	cycles   int // against serve
	ledger   int // against the ledger in library mode
	control  int // cycles in which a broken build must be caught; 0 for no controls
	perCycle int
	seed     uint64
	dir      string
}

func main() {
	o := options{}
	flag.IntVar(&o.cycles, "cycles", 300, "cycles against ichido serve")
	flag.IntVar(&o.ledger, "ledger", 100, "cycles against the ledger in library mode")
	flag.IntVar(&o.control, "controls", 50, "cycles in which a broken build must be caught, 0 for no controls")
	flag.IntVar(&o.perCycle, "events", 3000, "new events in one cycle, at most")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of everything that is drawn")
	flag.StringVar(&o.dir, "dir", "", "folder for the data, on the disk to test; default: a temporary one")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

// run runs the campaigns and returns why it failed. The data of a run that
// failed stay.
func run(ctx context.Context, o options, out io.Writer) error {
	work, err := os.MkdirTemp(o.dir, "crash-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	fmt.Fprintf(out, "seed %d\n", o.seed)
	for _, part := range []func(context.Context, options, string, io.Writer) error{serveCampaign, ledgerCampaign, controls} {
		if err := part(ctx, o, work, out); err != nil {
			return fmt.Errorf("%w\nthe data are in %s", err, work)
		}
	}
	fmt.Fprintln(out, "I5 (an old token settles nothing) is held by the store's own suite, not here.")
	return os.RemoveAll(work)
}

func serveCampaign(ctx context.Context, o options, work string, out io.Writer) error {
	if o.cycles == 0 {
		return nil
	}
	c, end, err := newServe(ctx, o, filepath.Join(work, "serve"), "", out)
	if err != nil {
		return err
	}
	defer end()
	if err := c.births(work); err != nil {
		return err
	}
	return c.all(ctx, o.cycles)
}

func ledgerCampaign(ctx context.Context, o options, work string, out io.Writer) error {
	if o.ledger == 0 {
		return nil
	}
	work = filepath.Join(work, "ledger")
	journal, err := makeJournal(work)
	if err != nil {
		return err
	}
	t, err := ledgerTarget(ctx, work)
	if err != nil {
		return err
	}
	oracle := newOracle(o.seed+1, t.sources, journal)
	c := newCampaign(t, oracle, o, out)
	return c.all(ctx, o.ledger)
}

func makeJournal(work string) (*journal, error) {
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return openJournal(filepath.Join(work, "oracle.log"))
}

// newServe makes a campaign against serve, with a destination of its own.
func newServe(ctx context.Context, o options, work, sabotage string, out io.Writer) (*campaign, func(), error) {
	journal, err := makeJournal(work)
	if err != nil {
		return nil, nil, err
	}
	oracle := newOracle(o.seed, nil, journal)
	dest, err := startDestination(oracle)
	if err != nil {
		return nil, nil, err
	}
	t, err := gatewayTarget(ctx, work, dest.base)
	if err != nil {
		dest.close()
		return nil, nil, err
	}
	oracle.sources = t.sources
	c := newCampaign(t, oracle, o, out)
	c.dest, c.sabotage = dest, sabotage
	return c, dest.close, nil
}

func newCampaign(t *target, oracle *oracle, o options, out io.Writer) *campaign {
	return &campaign{
		t: t, o: oracle, load: newLoad(oracle, "http://"+t.ingest, t.canaries()), auditor: &auditor{}, perCycle: o.perCycle,
		rng: rand.New(rand.NewPCG(o.seed, 2)), out: out, hits: map[string]int{},
	}
}

// controls shows that the harness sees broken builds: each must be caught
// within a number of cycles.
func controls(ctx context.Context, o options, work string, out io.Writer) error {
	for i, sabotage := range []string{"ack-before-commit", "no-unique-key"} {
		if o.control == 0 {
			return nil
		}
		o.seed++
		c, end, err := newServe(ctx, o, filepath.Join(work, fmt.Sprintf("control-%d", i)), sabotage, out)
		if err != nil {
			return err
		}
		at, err := c.caught(ctx, o.control)
		end()
		if err != nil {
			return err
		}
		if at == 0 {
			return fmt.Errorf("the build with %s was not caught in %d cycles: this harness proves nothing", sabotage, o.control)
		}
		fmt.Fprintf(out, "control %s: caught in cycle %d: %s\n", sabotage, at, c.o.failed()[0])
	}
	return nil
}

// caught returns the cycle in which a violation showed, 0 for none.
func (c *campaign) caught(ctx context.Context, cycles int) (int, error) {
	for n := range cycles {
		if err := c.cycle(ctx, n); err != nil {
			return 0, err
		}
		if len(c.o.failed()) > 0 {
			return n + 1, nil
		}
	}
	return 0, nil
}

// all runs the cycles and the last start, and prints the figures.
func (c *campaign) all(ctx context.Context, cycles int) error {
	began := time.Now()
	for n := range cycles {
		if err := c.cycle(ctx, n); err != nil {
			return fmt.Errorf("cycle %d: %w", n, err)
		}
		if v := c.o.failed(); len(v) > 0 {
			return fmt.Errorf("%s: cycle %d of %d: %w", c.t.name, n, cycles, violated(v))
		}
	}
	settled, err := c.finish(ctx)
	if err != nil {
		return err
	}
	c.report(cycles, settled, time.Since(began))
	if v := c.o.failed(); len(v) > 0 {
		return violated(v)
	}
	return c.o.log.close()
}

func violated(list []string) error {
	var errs []error
	for _, v := range list {
		errs = append(errs, errors.New(v))
	}
	return errors.Join(errs...)
}
