package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// diskFull fills the file system under the real binary. It may answer nothing
// but 2xx and 503, must go on by itself when there is room again, and must not
// have lost anything.
func diskFull(ctx context.Context, o options, out io.Writer) error {
	for _, c := range []struct{ name, limits string }{
		{"no reserve: SQLite meets the end of the disk", "limits: {free_disk: 1B}\n"},
		{"a reserve of 8 MiB", "limits: {free_disk: 8MiB}\n"},
	} {
		if err := oneFullDisk(ctx, o, out, c.name, c.limits); err != nil {
			return fmt.Errorf("full disk, %s: %w", c.name, err)
		}
	}
	return nil
}

const (
	volume  = "size=48m"
	ballast = 24 << 20
)

func oneFullDisk(ctx context.Context, o options, out io.Writer, name, limits string) (err error) {
	dir, err := os.MkdirTemp(o.dir, "full-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	small := filepath.Join(dir, "volume")
	if err := os.Mkdir(small, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, volume); err != nil {
		return fmt.Errorf("mount a small file system (this needs root): %w", err)
	}
	defer func() { err = errors.Join(err, syscall.Unmount(small, syscall.MNT_DETACH)) }()
	held := filepath.Join(small, "ballast")
	if err := os.WriteFile(held, make([]byte, ballast), 0o600); err != nil {
		return fmt.Errorf("take up room: %w", err)
	}
	b, err := newDaemon(ctx, dir, small, limits)
	if err != nil {
		return err
	}
	if err := b.start(""); err != nil {
		return err
	}
	defer func() { b.p.Kill() }()
	total := map[int]int{}
	for rounds := 0; total[503] < 200; rounds++ {
		for status, n := range b.load(400) {
			total[status] += n
		}
		if rounds > 200 {
			return fmt.Errorf("the disk did not become full: answers %v", total)
		}
	}
	if len(total) > 2 || total[200] == 0 {
		return fmt.Errorf("answers %v, only 200 and 503 wanted", total)
	}
	if err := os.Remove(held); err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	began := time.Now()
	for b.post() != 200 {
		if time.Since(began) > time.Minute {
			return errors.New("it does not take events a minute after there was room again")
		}
		select {
		case <-b.p.Ended():
			return fmt.Errorf("the process ended with exit code %d", b.p.ExitCode())
		case <-time.After(50 * time.Millisecond):
		}
	}
	took := time.Since(began)
	if err := b.p.Stop(20 * time.Second); err != nil {
		return err
	}
	lost, err := b.lost()
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d acknowledged events are lost", lost)
	}
	fmt.Fprintf(out, "full disk, %s: %d answers 200, %d answers 503, took events again %s after there was room, %d lost\n",
		name, total[200], total[503], took.Round(10*time.Millisecond), lost)
	return err
}
