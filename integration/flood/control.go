package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"ichido.dev/ichido/integration/internal/subject"
)

// serveNaive serves a receiver as it is often written: it reads the whole
// body before anything else, from everyone.
func serveNaive() error {
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) > 0 && r.URL.Path == hook {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	return http.ListenAndServe(os.Getenv("FLOOD_LISTEN"), http.HandlerFunc(handler))
}

// control floods the naive receiver and returns its peak memory: an error if
// it stays within the bar, or closes a connection whose body does not come,
// because then the flood is too gentle. It stops as soon as the bar is passed,
// for the sake of the machine.
func control(o options) (int64, error) {
	dir, err := os.MkdirTemp(o.dir, "flood-naive-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	self, err := subject.BuildHere(context.Background(), dir, "./flood", "naive")
	if err != nil {
		return 0, err
	}
	s := &server{self: self}
	if s.address, err = subject.FreeAddress(); err != nil {
		return 0, err
	}
	s.p, err = subject.Start(subject.Command{
		Path: self, Args: []string{"-naive"}, Env: []string{"FLOOD_LISTEN=" + s.address},
		Dir: dir, Log: filepath.Join(dir, "log"),
	})
	if err != nil {
		return 0, err
	}
	defer s.p.Kill()
	if _, err := s.p.WaitReady("http://"+s.address+"/", 10*time.Second); err != nil {
		return 0, err
	}
	const some = 2 * len(withheldBodies)
	if _, held := withheld(context.Background(), s.address, some, 2*time.Second); held != some {
		return 0, fmt.Errorf("a receiver without a deadline closed %d of %d connections: this harness proves nothing", some-held, some)
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if n, err := peak(s.p.ID()); err == nil && n > memoryBar {
				stop()
			}
			wait(ctx, 20*time.Millisecond)
		}
	}()
	large(ctx, s.address, o.naiveSenders)
	n, err := peak(s.p.ID())
	if err == nil && n <= memoryBar {
		err = fmt.Errorf("a receiver without any limit stayed at %d MiB: this harness proves nothing", n>>20)
	}
	return n, err
}
