package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"ichido.dev/ichido"
)

// destination receives forwards and applies each event once, by its
// webhook-id. It watches what the process promises: no attempt twice, no two
// at the same time, the exact bytes.
type destination struct {
	o      *oracle
	server *http.Server
	base   string

	// The next forward that counts down to zero kills the process: before or
	// after its answer.
	countdown atomic.Int64
	after     atomic.Bool
	kill      atomic.Pointer[func()]
}

func startDestination(o *oracle) (*destination, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the destination: %w", err)
	}
	d := &destination{o: o, base: "http://" + l.Addr().String()}
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = d.server.Serve(l) }() // ends with close
	return d, nil
}

func (d *destination) close() { _ = d.server.Shutdown(context.Background()) }

// ServeHTTP takes one forward.
func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the process died while it sent
	}
	attempt, err := strconv.Atoi(r.Header.Get("Ichido-Attempt"))
	if err != nil {
		d.o.violate("a forward has the attempt number %q", r.Header.Get("Ichido-Attempt"))
	}
	e, ok := d.o.forwarded(r.Header.Get("Webhook-Id"), sha256.Sum256(body), attempt)
	if !ok {
		w.WriteHeader(http.StatusGone)
		return
	}
	defer d.o.forwardEnded(e)
	kill := d.kill.Load()
	now := kill != nil && d.countdown.Add(-1) == 0
	if now && !d.after.Load() {
		d.o.apply(e)
		(*kill)()
	}
	if (e.n+attempt)%50 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable) // tried again later
		return
	}
	d.o.apply(e)
	w.WriteHeader(http.StatusNoContent)
	if now && d.after.Load() {
		_ = http.NewResponseController(w).Flush()
		(*kill)()
	}
}

// forwarded judges a forward when it arrives.
func (o *oracle) forwarded(id string, body digest, attempt int) (*event, bool) {
	hash, ok := ichido.ParseID(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.byHash[hash]
	switch {
	case !ok || e == nil || e.conflict:
		o.violateLocked("I3: a forward of %s, which no sender sent", id)
		return nil, false
	case e.body != body:
		o.violateLocked("I1: a forward of %s has other bytes than were sent", id)
	case attempt <= e.forwarded:
		o.violateLocked("I2: attempt %d of %s arrived after attempt %d", attempt, id, e.forwarded)
	case e.inFlight == o.incarnation+1:
		o.violateLocked("I2: two attempts of %s at the same time", id)
	}
	o.log.effect(hash, attempt)
	o.forwards++
	e.forwarded, e.inFlight = attempt, o.incarnation+1
	return e, true
}

// apply is the destination's effect: once for an event, however often it is
// forwarded.
func (o *oracle) apply(e *event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.applied = true
}

func (o *oracle) forwardEnded(e *event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.inFlight = 0
}
