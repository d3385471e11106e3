// Powerloss checks that what was acknowledged was on the disk: by taking the
// power from the store at random operations and losing what was not flushed,
// by looking at the system calls of the real binary, and by making flushes,
// writes and the disk's space fail.
//
// It does not test disks that say they flushed and did not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"ichido.dev/ichido/internal/faultdriver"
)

// options are the size of a run.
type options struct {
	points   int // power cuts
	controls int // power cuts of each control, at most
	fails    int // k of the k-th failure, at most
	requests int // under strace
	seed     uint64
	dir      string
}

func main() {
	o := options{}
	flag.IntVar(&o.points, "points", 300, "random operations at which the power goes")
	flag.IntVar(&o.controls, "controls", 100, "power cuts in which a sabotaged store must lose something")
	flag.IntVar(&o.fails, "fails", 40, "the k-th flush and the k-th write fail, for k up to this")
	flag.IntVar(&o.requests, "requests", 600, "deliveries to the binary that is traced")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of everything that is drawn")
	flag.StringVar(&o.dir, "dir", "", "folder for the data; default: a temporary one")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "powerloss:", err)
		os.Exit(1)
	}
}

// run runs all parts and returns every one that failed.
func run(ctx context.Context, o options, out io.Writer) error {
	work, err := os.MkdirTemp(o.dir, "powerloss-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(work)
	o.dir = work
	fmt.Fprintf(out, "seed %d\n", o.seed)
	var errs []error
	for _, part := range []func(context.Context, options, io.Writer) error{cuts, cutControls, failures, diskFull, traces, failingFlush} {
		errs = append(errs, part(ctx, o, out))
	}
	return errors.Join(errs...)
}

// lastOperation bounds the operation at which the power goes. A run makes
// about twice as many; the log is copied into the database several times.
const lastOperation = 3000

// cuts takes the power at random operations.
func cuts(ctx context.Context, o options, out io.Writer) error {
	rng := rand.New(rand.NewPCG(o.seed, 4))
	total, lost := 0, 0
	for n := range o.points {
		at := 1 + rng.Int64N(lastOperation)
		acked, missing, err := powerCut(ctx, o.dir, o.seed+uint64(n), at, faultdriver.Plan{})
		if err != nil {
			return fmt.Errorf("power cut %d at operation %d: %w", n, at, err)
		}
		total, lost = total+acked, lost+missing
	}
	fmt.Fprintf(out, "power cuts: %d, %d events acknowledged before them, %d lost\n", o.points, total, lost)
	if lost > 0 || total == 0 {
		return fmt.Errorf("%d of %d acknowledged events are lost after %d power cuts", lost, total, o.points)
	}
	return nil
}

// cutControls takes the power from stores that do not flush every commit, and
// must see them lose events, or damage the file.
func cutControls(ctx context.Context, o options, out io.Writer) error {
	for _, level := range []string{"normal", "off"} {
		rng := rand.New(rand.NewPCG(o.seed, 5))
		caught := 0
		for n := 1; n <= o.controls && caught == 0; n++ {
			at := 1 + rng.Int64N(lastOperation)
			_, lost, err := powerCut(ctx, o.dir, o.seed+uint64(n), at, faultdriver.Plan{Synchronous: level})
			if lost > 0 || err != nil {
				caught = n
				fmt.Fprintf(out, "control synchronous=%s: caught at power cut %d: %d acknowledged events are lost, error %v\n", level, n, lost, err)
			}
		}
		if caught == 0 {
			return fmt.Errorf("synchronous=%s lost nothing in %d power cuts: this harness proves nothing", level, o.controls)
		}
	}
	return nil
}
