package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // to count the rows

	"ichido.dev/ichido/integration/internal/subject"
)

const (
	secret = "flood-secret-0d9c8b7a6f5e4d3c"
	hook   = "/hooks/github"
)

// server is the binary that is tested.
type server struct {
	p       *subject.Process
	dir     string
	address string
	self    string // this program, to be started as the good sender
	good    int    // deliveries that were accepted
	unsure  int    // good ones that no answer came back for
}

// startServer builds and starts the binary with a configuration that says
// nothing but what it must.
func startServer(ctx context.Context, parent string) (*server, error) {
	dir, err := os.MkdirTemp(parent, "flood-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	s := &server{dir: dir}
	binary, err := subject.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	if s.self, err = subject.BuildHere(ctx, dir, "./flood", "flood"); err != nil {
		return nil, err
	}
	if s.address, err = subject.FreeAddress(); err != nil {
		return nil, err
	}
	admin, err := subject.FreeAddress()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("listen: %s\nadmin: {listen: %q}\nstore: %q\nsources:\n  - {name: github, provider: github, secrets: [%s]}\n",
		s.address, admin, "sqlite:"+filepath.Join(dir, "events.db"), secret)
	file := filepath.Join(dir, "ichido.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	s.p, err = subject.Start(subject.Command{Path: binary, Args: []string{"serve", "--config", file}, Dir: dir, Log: filepath.Join(dir, "log")})
	if err != nil {
		return nil, err
	}
	if _, err := s.p.WaitReady("http://"+s.address+"/readyz", 10*time.Second); err != nil {
		s.p.Kill()
		return nil, err
	}
	return s, nil
}

func (s *server) close() {
	s.p.Kill()
	_ = os.RemoveAll(s.dir)
}

// finish stops the process, and checks that what is stored is what the good
// sender sent.
func (s *server) finish(out io.Writer) error {
	if err := s.p.Stop(20 * time.Second); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "events.db")+"?mode=ro")
	if err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	defer db.Close()
	var rows int
	if err := db.QueryRow(`SELECT count(*) FROM ichido_events`).Scan(&rows); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	fmt.Fprintf(out, "%d deliveries of the good sender were accepted, %d of its have no answer, %d rows are stored\n", s.good, s.unsure, rows)
	if rows < s.good || rows > s.good+s.unsure {
		return fmt.Errorf("%d rows are stored for %d good deliveries", rows, s.good)
	}
	return nil
}

// resetPeak has the kernel forget the highest memory use of a process.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// peak returns the highest resident memory of a process since resetPeak.
func peak(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(words[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("read memory use of process %d: there is no VmHWM", pid)
}
