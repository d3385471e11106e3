package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"ichido.dev/ichido/integration/internal/subject"
)

const (
	secret = "powerloss-secret-1a2b3c4d5e6f"
	hook   = "/hooks/github"
)

// daemon is the real binary with its files, and what it has acknowledged.
type daemon struct {
	dir, db, path string
	address       string
	p             *subject.Process
	client        *http.Client
	next          atomic.Int64

	mu    sync.Mutex
	acked map[[sha256.Size]byte]bool // bodies
}

// newDaemon builds the binary and writes its configuration. Its database is
// in dbDir.
func newDaemon(ctx context.Context, dir, dbDir, limits string, tags ...string) (*daemon, error) {
	b := &daemon{
		dir: dir, db: filepath.Join(dbDir, "events.db"), acked: map[[sha256.Size]byte]bool{},
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: senders}},
	}
	var err error
	if b.path, err = subject.Build(ctx, dir, tags...); err != nil {
		return nil, err
	}
	if b.address, err = subject.FreeAddress(); err != nil {
		return nil, err
	}
	admin, err := subject.FreeAddress()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("listen: %s\nadmin: {listen: %q}\nstore: %q\n%ssources:\n  - {name: github, provider: github, secrets: [%s]}\n",
		b.address, admin, "sqlite:"+b.db, limits, secret)
	if err := os.WriteFile(b.config(), []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b, nil
}

func (b *daemon) config() string { return filepath.Join(b.dir, "ichido.yaml") }

// start starts it and waits until it is ready.
func (b *daemon) start(plan string, wrap ...string) (err error) {
	c := subject.Command{Path: b.path, Args: []string{"serve", "--config", b.config()}, Dir: b.dir, Log: filepath.Join(b.dir, "log"), Wrap: wrap}
	if plan != "" {
		c.Env = []string{"ICHIDO_FAULT=" + plan}
	}
	if b.p, err = subject.Start(c); err != nil {
		return err
	}
	if _, err = b.p.WaitReady("http://"+b.address+"/readyz", 20*time.Second); err != nil {
		b.p.Kill()
	}
	return err
}

// post sends one genuine delivery and returns its status, 0 for none.
func (b *daemon) post() int {
	n := b.next.Add(1)
	body := fmt.Appendf(nil, `{"zen":"Keep it logically awesome.","hook_id":%d,"filler":"%s"}`, n, bytes.Repeat([]byte("x"), 1200))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	req, err := http.NewRequest(http.MethodPost, "http://"+b.address+hook, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Github-Event", "powerloss")
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := b.client.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode/100 == 2 {
		b.mu.Lock()
		b.acked[sha256.Sum256(body)] = true
		b.mu.Unlock()
	}
	return res.StatusCode
}

const senders = 8

// load sends n deliveries from several senders and counts their statuses.
func (b *daemon) load(n int) map[int]int {
	counts := map[int]int{}
	var mu sync.Mutex
	var group sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range senders {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				status := b.post()
				mu.Lock()
				counts[status]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return counts
}

// lost returns how many acknowledged bodies are not in the database. It
// starts the binary again, so that the binary has done the recovery.
func (b *daemon) lost() (int, error) {
	if err := b.start(""); err != nil {
		return 0, fmt.Errorf("start again: %w", err)
	}
	defer b.p.Kill()
	db, err := sql.Open("sqlite", "file:"+b.db+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return 0, fmt.Errorf("look for what was acknowledged: %w", err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT body FROM ichido_bodies`)
	if err != nil {
		return 0, fmt.Errorf("look for what was acknowledged: %w", err)
	}
	defer rows.Close()
	missing := len(b.acked)
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return 0, fmt.Errorf("look for what was acknowledged: %w", err)
		}
		if b.acked[sha256.Sum256(body)] {
			missing--
		}
	}
	return missing, rows.Err()
}
