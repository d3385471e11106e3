package bench

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
	"ichido.dev/ichido/store/sqlite"
)

// Contestants, each in a process of its own.
const (
	floor     = "floor"     // net/http, io.ReadAll and HMAC; stores nothing
	inbox     = "ichido"    // serve's own code, workers on
	single    = "single"    // the floor, and one commit per request
	prototype = "prototype" // the floor, and a bare group commit
)

// mark is what a contestant says of itself at one moment.
type mark struct {
	CPU     time.Duration // of the process, user and system
	RSS     int64         // most resident bytes so far
	Stored  int           // events stored
	Pending int           // of these, not yet worked
	Commits int64         // transactions committed; 0 where nobody counts
	Journal string        // journal mode and synchronous, as read back
}

// Contend runs one contestant: it prints its address, and a mark for each
// line it reads, until stdin ends.
func Contend(ctx context.Context, name, driver, dir string, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := start(ctx, name, driver, dir)
	if err != nil {
		return fmt.Errorf("start contestant %s: %w", name, err)
	}
	fmt.Fprintln(stdout, c.address)
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		m, err := c.mark(ctx)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(stdout).Encode(m); err != nil {
			return err
		}
	}
	cancel()
	return c.wait()
}

// contestant is a running server.
type contestant struct {
	address string
	count   func(context.Context, *mark) error
	wait    func() error
}

func (c *contestant) mark(ctx context.Context) (mark, error) {
	var m mark
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return m, fmt.Errorf("read usage: %w", err)
	}
	m.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	m.RSS = peak(usage.Maxrss << 10)
	return m, c.count(ctx, &m)
}

// peak returns the most bytes that this program had resident. What getrusage
// says of a process begins with its parent's.
func peak(fallback int64) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fallback // not Linux
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return fallback
	}
	return kib << 10
}

func start(ctx context.Context, name, driver, dir string) (*contestant, error) {
	switch name {
	case floor:
		return serveBare(ctx, nil, func(context.Context, *mark) error { return nil })
	case inbox:
		return serveInbox(ctx, driver, dir)
	case single:
		return serveSingle(ctx, driver, dir)
	case prototype:
		return servePrototype(ctx, driver, dir)
	}
	return nil, errors.New("there is no such contestant")
}

// serveBare serves the floor's handler: the whole body, the MAC, and store,
// where there is one.
func serveBare(ctx context.Context, store func(*delivered) error, count func(context.Context, *mark) error) (*contestant, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "body", http.StatusBadRequest)
			return
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		given, err := hex.DecodeString(strings.TrimPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256="))
		if err != nil || !hmac.Equal(given, mac.Sum(nil)) {
			http.Error(w, "signature", http.StatusUnauthorized)
			return
		}
		if store != nil {
			d := &delivered{event: r.Header.Get("X-GitHub-Event"), header: r.Header.Get("X-Hub-Signature-256"), body: body, sum: sha256.Sum256(body), at: time.Now().Unix()}
			if err := store(d); err != nil {
				http.Error(w, "store", http.StatusServiceUnavailable)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"accepted":true}`)
	})
	s := &http.Server{Handler: handler}
	go s.Serve(l)
	context.AfterFunc(ctx, func() { s.Close() })
	return &contestant{l.Addr().String(), count, func() error { return nil }}, nil
}

// serveInbox serves the gateway with the GitHub profile as shipped, on
// SQLite, with a worker that completes every event.
func serveInbox(ctx context.Context, driver, dir string) (*contestant, error) {
	db, err := sql.Open(driver, "file:"+filepath.Join(dir, "ichido.db"))
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	gateway.TuneCollector(os.LookupEnv)
	file := config.Parse([]byte("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nsources: [{name: github, provider: github, secrets: ['" + secret + "']}]\n"))
	g, err := gateway.New(gateway.Options{
		Config: file, Store: store, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Attach: func(s *ichido.Source) {
			s.Handler = func(context.Context, *ichido.Event) error { return nil }
		},
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	count := func(ctx context.Context, m *mark) error {
		stats, err := store.Stats(ctx)
		for state, n := range stats.Counts["github"] {
			m.Stored += n
			if state == ichido.Pending || state == ichido.Claimed {
				m.Pending += n
			}
		}
		m.Commits = store.Commits()
		var readErr error
		m.Journal, readErr = store.Durability(ctx)
		return errors.Join(err, readErr)
	}
	return &contestant{g.IngestAddr(), count, func() error { return errors.Join(<-ended, store.Close(), db.Close()) }}, nil
}
