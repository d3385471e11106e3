package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ichido.dev/ichido/integration/internal/subject"
)

// target is a program that is killed and started again on the same files.
type target struct {
	name    string
	dir     string // its files
	db      string // its database
	logs    string // its output
	sources []source
	ledger  bool
	points  []string // where it is killed by name

	normal, faulty string // the two builds
	args           []string
	forwardTo      string // URL of the destination
	ingest, admin  string // addresses
}

// adminToken is a canary like the other secrets.
const adminToken = "canary-admin-77aa0d3b5c9e4f12"

// gatewayTarget is `ichido serve` with one source of each kind of key, all of
// them forwarded to the destination.
func gatewayTarget(ctx context.Context, work, forwardTo string) (*target, error) {
	t := &target{name: "serve", sources: gatewaySources(), points: gatewayPoints(), forwardTo: forwardTo}
	var err error
	if t.normal, err = subject.Build(ctx, work); err != nil {
		return nil, err
	}
	if t.faulty, err = subject.Build(ctx, work, "fault"); err != nil {
		return nil, err
	}
	return t, t.place(work)
}

// place gives the target a folder, addresses and arguments.
func (t *target) place(work string) (err error) {
	t.dir = filepath.Join(work, t.name)
	t.db, t.logs = filepath.Join(t.dir, "events.db"), filepath.Join(work, t.name+".log")
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	if t.ingest, err = subject.FreeAddress(); err != nil {
		return err
	}
	if t.admin, err = subject.FreeAddress(); err != nil {
		return err
	}
	if t.ledger {
		t.args = []string{"-db", t.db, "-listen", t.ingest, "-now", t.sources[0].secret, "-later", t.sources[1].secret}
		return nil
	}
	t.args = []string{"serve", "--config", filepath.Join(t.dir, "ichido.yaml")}
	return os.WriteFile(t.args[2], []byte(t.config()), 0o600)
}

func (t *target) config() string {
	var b strings.Builder
	token := sha256.Sum256([]byte(adminToken))
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %q, tokens: [%q]}\nstore: %q\nsources:\n",
		t.ingest, t.admin, "sha256:"+hex.EncodeToString(token[:]), "sqlite:"+t.db)
	for i := range t.sources {
		s := &t.sources[i]
		fmt.Fprintf(&b, "  - name: %s\n    provider: %s\n    secrets: [%q]\n", s.name, s.provider, s.secret)
		fmt.Fprintf(&b, "    deliver: {to: %q, backoff: [50ms, 200ms, %s]}\n", t.forwardTo+"/"+s.name, maxBackoff)
		if s.purges {
			b.WriteString("    retention: {bodies: 1s}\n")
		}
	}
	return b.String()
}

// What bounds the time to a terminal state: see I7.
const (
	lease      = 30 * time.Second
	maxBackoff = time.Second
)

// ledgerTarget is a program that uses the library: effects in the same
// transaction, during the request and in the worker.
func ledgerTarget(ctx context.Context, work string) (*target, error) {
	t := &target{name: "ledger", ledger: true, sources: ledgerSources(), points: ledgerPoints()}
	var err error
	if t.normal, err = subject.BuildHere(ctx, work, "./crash/ledgertarget", "ledgertarget"); err != nil {
		return nil, err
	}
	t.faulty = t.normal
	return t, t.place(work)
}

// start starts the target, with a fault plan where there is one.
func (t *target) start(plan string) (*subject.Process, error) {
	c := subject.Command{Path: t.normal, Args: t.args, Dir: t.dir, Log: t.logs}
	if plan != "" {
		c.Path, c.Env = t.faulty, []string{"ICHIDO_FAULT=" + plan}
	}
	return subject.Start(c)
}

func (t *target) readyURL() string { return "http://" + t.ingest + "/readyz" }

// canaries are what no output may hold.
func (t *target) canaries() []string {
	list := []string{adminToken}
	for i := range t.sources {
		list = append(list, t.sources[i].secret)
	}
	return list
}

// around returns the two points of each kind.
func around(kinds ...string) []string {
	var points []string
	for _, k := range kinds {
		points = append(points, "before-"+k, "after-"+k)
	}
	return points
}

// gatewayPoints are the points that `serve` passes under the load.
func gatewayPoints() []string {
	return around("begin", "commit", "insert-event", "insert-body", "copy", "find", "keep", "choose", "claim", "settle",
		"purge-body", "purge-mark", "purge-event", "count", "checkpoint",
		"commit+insert-body", "commit+copy", "commit+keep", "commit+claim", "commit+settle", "commit+purge-body")
}

// ledgerPoints are those of the target in library mode.
func ledgerPoints() []string {
	return around("begin", "commit", "insert-event", "insert-body", "keep", "claim", "settle", "effect",
		"commit+insert-body", "commit+claim", "commit+effect", "commit+keep")
}

// birthPoints are passed only when the database is made.
func birthPoints() []string { return around("migrate", "commit+migrate") }
