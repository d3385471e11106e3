package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // to look into the database
)

// calls are the system calls that are traced.
const calls = "trace=read,write,fsync,fdatasync"

// needStrace installs strace where it is missing, which needs Debian and root.
func needStrace(out io.Writer) error {
	if _, err := exec.LookPath("strace"); err == nil {
		return nil
	}
	fmt.Fprintln(out, "strace is missing: installing it with apt-get")
	for _, argv := range [][]string{{"apt-get", "update"}, {"apt-get", "install", "-y", "strace"}} {
		if text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("install strace: %w\n%s", err, text)
		}
	}
	return nil
}

// traces looks at the system calls of the real binary: every 2xx must be
// preceded by a flush of the log that began after the request had been read.
// The build that does not flush must be seen.
func traces(ctx context.Context, o options, out io.Writer) error {
	if err := needStrace(out); err != nil {
		return err
	}
	e, err := traced(ctx, o, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "system calls: %d answers 2xx, %d flushes of the log, %d answers without a flush that began after the request was read\n", e.acknowledged, e.flushes, e.unproven)
	if e.unproven > 0 || e.acknowledged < o.requests {
		return fmt.Errorf("%d of %d answers 2xx (%d were sent) are not preceded by a flush", e.unproven, e.acknowledged, o.requests)
	}
	if e, err = traced(ctx, o, "synchronous=off"); err != nil {
		return err
	}
	fmt.Fprintf(out, "control synchronous=off: caught: %d of %d answers are not preceded by a flush\n", e.unproven, e.acknowledged)
	if e.unproven == 0 {
		return errors.New("the build that does not flush was not caught: this harness proves nothing")
	}
	return nil
}

func traced(ctx context.Context, o options, plan string) (*evidence, error) {
	dir, err := os.MkdirTemp(o.dir, "trace-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b, err := newDaemon(ctx, dir, dir, "", tagsFor(plan)...)
	if err != nil {
		return nil, err
	}
	trace := filepath.Join(dir, "trace")
	if err := b.start(plan, "strace", "-f", "-yy", "-s", "16", "-e", calls, "-o", trace); err != nil {
		return nil, err
	}
	defer b.p.Kill()
	if counts := b.load(o.requests); counts[200] != o.requests {
		return nil, fmt.Errorf("deliveries to the traced binary were answered %v", counts)
	}
	child, err := b.p.Child()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(child, syscall.SIGTERM); err != nil {
		return nil, fmt.Errorf("stop the traced binary: %w", err)
	}
	<-b.p.Ended()
	return readTrace(trace)
}

func tagsFor(plan string) []string {
	if plan == "" {
		return nil
	}
	return []string{"fault"}
}

// failingFlush makes a flush of the real binary fail while it serves. From
// then on it must acknowledge nothing, end with an error, and have lost
// nothing when it is started again.
func failingFlush(ctx context.Context, o options, out io.Writer) error {
	if err := needStrace(out); err != nil {
		return err
	}
	runs := 0
	for _, when := range []string{"1", "1+", "3", "3+"} {
		if err := oneFailingFlush(ctx, o, when); err != nil {
			return fmt.Errorf("a flush failed (%s): %w", when, err)
		}
		runs++
	}
	fmt.Fprintf(out, "failing flush of the binary, once and sticky: %d runs, each ended with an error and no 2xx after it, 0 lost\n", runs)
	return nil
}

// loadUntilEnd waits until the binary is traced, and sends until it ends.
func (b *daemon) loadUntilEnd() error {
	for deadline := time.Now().Add(15 * time.Second); ; {
		select {
		case <-b.p.Ended():
			return nil
		default:
		}
		if time.Now().After(deadline) {
			return errors.New("the process goes on")
		}
		if b.traced() {
			b.load(2 * senders)
		}
	}
}

// traced reports whether every thread of the binary is traced.
func (b *daemon) traced() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", b.p.ID()))
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return len(threads) > 0
}

func oneFailingFlush(ctx context.Context, o options, when string) error {
	dir, err := os.MkdirTemp(o.dir, "flush-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	b, err := newDaemon(ctx, dir, dir, "")
	if err != nil {
		return err
	}
	if err := b.start(""); err != nil {
		return err
	}
	defer b.p.Kill()
	b.load(50)
	trace := filepath.Join(dir, "trace")
	attached := exec.Command("strace", "-f", "-yy", "-s", "16", "-e", calls, "-e", "inject=fsync,fdatasync:error=EIO:when="+when,
		"-o", trace, "-p", strconv.Itoa(b.p.ID()))
	if err := attached.Start(); err != nil {
		return fmt.Errorf("attach strace: %w", err)
	}
	if err := b.loadUntilEnd(); err != nil {
		return errors.Join(err, attached.Process.Kill(), attached.Wait())
	}
	_ = attached.Wait() // it ended with the binary, and the trace is complete
	if code := b.p.ExitCode(); code <= 0 {
		return fmt.Errorf("the process ended with exit code %d", code)
	}
	e, err := readTrace(trace)
	if err != nil {
		return err
	}
	if e.failed == 0 || e.afterFailure > 0 {
		return fmt.Errorf("%d flushes failed, %d requests read after that were answered 2xx", e.failed, e.afterFailure)
	}
	lost, err := b.lost()
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d acknowledged events are lost", lost)
	}
	return err
}
