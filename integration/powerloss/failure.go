package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"ichido.dev/ichido/internal/faultdriver"
)

// failures makes the k-th flush and the k-th write fail, once and from then
// on. After a failed flush the store must take nothing more; whatever it
// acknowledged must be there when it is opened again.
func failures(ctx context.Context, o options, out io.Writer) error {
	runs, broken, acked := 0, 0, 0
	for k := 1; k <= o.fails; k++ {
		for _, f := range []faults{
			{flush: int64(k)},
			{flush: int64(k), sticky: true},
			{write: int64(2 * k)},
			{write: int64(2 * k), sticky: true},
			{write: int64(3 * k), full: true, until: int64(3*k + 10)},
		} {
			w, failed, err := oneFailure(ctx, o, k, f)
			if err != nil {
				return fmt.Errorf("failure %+v: %w", f, err)
			}
			runs++
			acked += w
			if failed {
				broken++
			}
		}
	}
	fmt.Fprintf(out, "failing flushes, writes and a full disk in the store: %d runs, %d of them broke the store for good, %d events acknowledged, 0 lost\n", runs, broken, acked)
	if broken == 0 {
		return errors.New("no failure broke the store: the faults were not reached")
	}
	return nil
}

// oneFailure runs a store with one fault, and opens its files again.
func oneFailure(ctx context.Context, o options, k int, f faults) (acked int, broke bool, err error) {
	dir, err := os.MkdirTemp(o.dir, "fail-")
	if err != nil {
		return 0, false, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	d := newDisk(rand.New(rand.NewPCG(o.seed, uint64(k))))
	w, err := newWorld(ctx, dir, d, faultdriver.Plan{})
	if err != nil {
		return 0, false, err
	}
	// Counted from here: opening has had its own flushes.
	d.mu.Lock()
	d.flushes, d.writes, d.faults = 0, 0, f
	d.mu.Unlock()
	w.work(o.seed+uint64(k), 300)
	broke = w.store.Err() != nil
	reached := d.flushes >= f.flush && d.writes >= f.write
	if f.flush != 0 && reached && !broke {
		err = errors.New("the store goes on after a failed flush")
	}
	if f.full && broke {
		err = errors.New("a full disk broke the store for good")
	}
	if before := w.puts; broke {
		w.put(rand.New(rand.NewPCG(o.seed, 6)), 1)
		if w.puts != before {
			err = errors.Join(err, errors.New("the store acknowledged an event after it broke"))
		}
	} else if f.full && reached {
		w.put(rand.New(rand.NewPCG(o.seed, 7)), 1)
		if w.puts == before {
			err = errors.Join(err, errors.New("the store does not recover when there is room again"))
		}
	}
	_ = w.close() // a broken store says that it is
	if err != nil {
		return 0, broke, err
	}
	lost, err := w.verify(ctx, dir)
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d acknowledged events are lost", lost))
	}
	return w.puts, broke, err
}
