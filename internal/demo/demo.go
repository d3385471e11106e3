// Package demo shows the whole of ichido in a minute, over real HTTP and
// through the code of `ichido serve`: genuine webhooks stored, deduplicated,
// confirmed and applied, and forged ones refused.
//
// It needs nothing but a temporary folder. Every cell of its table is read
// from an answer or from the store; if one is not what it should be, the demo
// fails.
package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
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
	"sync"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
	"ichido.dev/ichido/internal/standin"
	"ichido.dev/ichido/store/sqlite"
)

// Options are what a demo needs.
type Options struct {
	Driver    string            // database/sql driver for SQLite
	Transport http.RoundTripper // of the senders; http.DefaultTransport by default
	Log       *slog.Logger
}

// Demo is a running gateway with its senders, its destination and its
// stand-in of the Gemini API.
type Demo struct {
	opts    Options
	dir     string
	db      *sql.DB
	store   *sqlite.Store
	gateway *gateway.Gateway
	gemini  *standin.Gemini
	client  *http.Client
	secrets map[string]string // by environment variable
	stop    func() error

	mu        sync.Mutex
	forwarded map[string]int // guarded by mu: what the destination got, by webhook-id
}

const configuration = `
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
signing: [env:SIGNING]
sources:
  - {name: stripe, provider: stripe, secrets: [env:STRIPE]}
  - {name: github, provider: github, secrets: [env:GITHUB], deliver: {to: "%s/hook"}}
  - name: gemini
    provider: gemini
    secrets: [env:GEMINI]
    confirm: {gemini: {api_key: env:GEMINI_API_KEY, base_url: "%s"}}
`

// Start makes the folder, the servers and the gateway.
func Start(ctx context.Context, o Options) (d *Demo, err error) {
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	d = &Demo{opts: o, forwarded: map[string]int{}, client: &http.Client{Transport: o.Transport, Timeout: 20 * time.Second}}
	d.secrets = map[string]string{
		"STRIPE": "whsec_" + random(24), "GITHUB": random(24), "GEMINI_API_KEY": random(24),
		"GEMINI": signingKey(), "SIGNING": signingKey(),
	}
	if d.dir, err = os.MkdirTemp("", "ichido-demo"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	d.stop = func() error { cancel(); return os.RemoveAll(d.dir) }
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func (d *Demo) start(ctx context.Context) error {
	var err error
	if d.db, err = sql.Open(d.opts.Driver, "file:"+d.Database()); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	if d.store, err = sqlite.Open(ctx, d.db, sqlite.Options{MinFree: -1}); err != nil {
		return err
	}
	if _, err := d.db.ExecContext(ctx, ledgerSchema); err != nil {
		return fmt.Errorf("make the ledger: %w", err)
	}
	d.gemini = standin.NewGemini(d.secrets["GEMINI_API_KEY"])
	api, err := serve(ctx, d.gemini)
	if err != nil {
		return err
	}
	destination, err := serve(ctx, http.HandlerFunc(d.receive))
	if err != nil {
		return err
	}
	d.gateway, err = gateway.New(gateway.Options{
		Config: config.Parse(fmt.Appendf(nil, configuration, destination, api)),
		Store:  d.store, Log: d.opts.Log, Attach: d.attach,
		Getenv: func(name string) (string, bool) { v, ok := d.secrets[name]; return v, ok },
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- d.gateway.Run(ctx) }()
	before := d.stop
	d.stop = func() error {
		cancel()
		return errors.Join(<-ended, d.store.Close(), d.db.Close(), before())
	}
	return nil
}

// Stop ends everything and removes the folder.
func (d *Demo) Stop() error { return d.stop() }

// Database returns the path of the demo's database.
func (d *Demo) Database() string { return filepath.Join(d.dir, "ichido.db") }

// Addresses returns where deliveries and the admin are served.
func (d *Demo) Addresses() (ingest, admin string) {
	return d.gateway.IngestAddr(), d.gateway.AdminAddr()
}

const ledgerSchema = `CREATE TABLE ledger (id INTEGER PRIMARY KEY CHECK (id = 1), total INTEGER NOT NULL); INSERT INTO ledger VALUES (1, 0)`

// attach lets the demo itself handle two of the sources: Stripe events go into
// the ledger, in the transaction that completes them.
func (d *Demo) attach(s *ichido.Source) {
	switch s.Name {
	case "stripe":
		s.Handler, s.Outcome = nil, ""
		s.Apply = d.store.Tx(addToLedger)
	case "gemini":
		s.Outcome = ichido.Applied
		s.Handler = func(_ context.Context, e *ichido.Event) error {
			if !bytes.Contains(e.Confirmed(), []byte("BATCH_STATE_SUCCEEDED")) {
				return ichido.Permanent(errors.New("the fetched state is not the one that was confirmed"))
			}
			return nil
		}
	}
}

func addToLedger(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
	var payload struct {
		Data struct{ Object struct{ Amount int64 } }
	}
	if err := json.Unmarshal(e.Payload(), &payload); err != nil {
		return ichido.Permanent(err)
	}
	_, err := tx.ExecContext(ctx, "UPDATE ledger SET total = total + ? WHERE id = 1", payload.Data.Object.Amount)
	return err
}

// receive is the destination of the GitHub source.
func (d *Demo) receive(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forwarded[r.Header.Get("Webhook-Id")]++
}

// serve serves a handler on a free port of the loopback and returns its URL.
func serve(ctx context.Context, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go s.Serve(l)
	context.AfterFunc(ctx, func() { s.Close() })
	return "http://" + l.Addr().String(), nil
}

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// signingKey returns a key in the form of Standard Webhooks.
func signingKey() string {
	b := make([]byte, 32)
	rand.Read(b)
	return "whsec_" + base64.StdEncoding.EncodeToString(b)
}

// answer is what a sender reads of its answer.
type answer struct {
	status int
	word   string // "accepted", "duplicate", or the code of a refusal
	id     string
}

// post signs a body as the source's sender does, posts it, and reads the
// answer.
func (d *Demo) post(ctx context.Context, source string, header http.Header, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.gateway.IngestAddr()+"/hooks/"+source, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("post to %s: %w", source, err)
	}
	defer res.Body.Close()
	var reply struct {
		Accepted, Duplicate bool
		ID, Code            string
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&reply); err != nil {
		return answer{status: res.StatusCode}, fmt.Errorf("read the answer of %s: %w", source, err)
	}
	a := answer{status: res.StatusCode, id: reply.ID, word: reply.Code}
	switch {
	case a.word != "":
	case reply.Duplicate:
		a.word = ichido.Duplicate.String()
	case reply.Accepted:
		a.word = ichido.Accepted.String()
	}
	return a, nil
}

// inStore returns the state of an event as the store has it.
func (d *Demo) inStore(ctx context.Context, id string) (string, error) {
	rec, err := d.store.Get(ctx, id)
	if err != nil {
		return "", err
	}
	switch {
	case rec.Outcome != "":
		return string(rec.State) + "/" + rec.Outcome, nil
	case rec.Cause != "":
		return string(rec.State) + ": " + firstWords(rec.Cause), nil
	}
	return string(rec.State), nil
}

// firstWords returns a cause as far as its kind goes.
func firstWords(cause string) string {
	if strings.HasPrefix(cause, ichido.ErrNotYet.Error()) || strings.Contains(cause, ichido.ErrNotYet.Error()) {
		return ichido.ErrNotYet.Error()
	}
	head, _, _ := strings.Cut(cause, ":")
	return head
}
