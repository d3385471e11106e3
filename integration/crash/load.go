package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const connections = 128

// load sends deliveries over keep-alive connections, as senders would, until
// its context ends.
type load struct {
	o        *oracle
	base     string // URL of the target
	client   *http.Client
	canaries []string
	left     atomic.Int64 // new events that may still be made

	answers atomic.Int64 // until the kill
	kill    func()
}

func newLoad(o *oracle, base string, canaries []string) *load {
	return &load{o: o, base: base, canaries: canaries, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true},
		Timeout:   20 * time.Second,
	}}
}

// killAt has the n-th answer from now end the process, 0 for none. It must not
// be called while run runs.
func (l *load) killAt(n int, kill func()) {
	l.answers.Store(int64(n))
	l.kill = kill
}

// run sends until ctx ends, with at most most new events.
func (l *load) run(ctx context.Context, most int) error {
	l.left.Store(int64(most))
	defer l.client.CloseIdleConnections()
	var senders sync.WaitGroup
	var failure atomic.Pointer[error]
	for range connections {
		senders.Go(func() {
			for ctx.Err() == nil {
				do, e := l.o.next(l.left.Add(-1) >= 0)
				if err := l.send(ctx, do, e); err != nil {
					failure.Store(&err)
					return
				}
			}
		})
	}
	senders.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// send sends one delivery and tells the oracle what came back. It is logged,
// and the log is on the disk, before a byte of it leaves.
func (l *load) send(ctx context.Context, do action, e *event) error {
	if err := l.o.log.sent(e, do); err != nil {
		return err
	}
	body := bodyOf(l.o.seed, e.n, e.variant)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+e.source.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	secret := e.source.secret
	if do == sendForged {
		secret = secret[:len(secret)-8] + "AAAAAAA="
	}
	e.source.sign(req.Header, secret, idOf(l.o.seed, e.n), body, time.Now())
	res, err := l.client.Do(req)
	if err != nil {
		l.o.answered(e, do, 0, false, "")
		pause(ctx, time.Millisecond)
		return nil
	}
	defer res.Body.Close()
	if l.answers.Add(-1) == 0 {
		l.kill()
	}
	text, readErr := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	// The status was seen: the sender takes it as the answer, whatever
	// happened to the rest.
	l.o.log.answered(e, res.StatusCode)
	var reply struct {
		Duplicate *bool  `json:"duplicate"`
		ID        string `json:"id"`
	}
	if readErr != nil || json.Unmarshal(text, &reply) != nil || reply.Duplicate == nil {
		unknown := true
		reply.Duplicate = &unknown
	}
	l.o.answered(e, do, res.StatusCode, *reply.Duplicate, reply.ID)
	l.look(text, req.Header)
	if res.StatusCode == http.StatusServiceUnavailable {
		pause(ctx, 5*time.Millisecond)
	}
	return nil
}

// look searches an answer for secrets and for the MAC that was sent.
func (l *load) look(text []byte, h http.Header) {
	for _, canary := range l.canaries {
		if bytes.Contains(text, []byte(canary)) {
			l.o.violate("I8: an answer holds a secret")
		}
	}
	for _, name := range []string{"X-Hub-Signature-256", "Stripe-Signature", "Webhook-Signature", "X-Signature"} {
		value := h.Get(name)
		if mac := value[strings.LastIndexAny(value, "=,")+1:]; len(mac) >= 2*hmacBytes && bytes.Contains(text, []byte(mac)) {
			l.o.violate("I8: an answer holds a MAC")
		}
	}
}

const hmacBytes = sha256.Size

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
