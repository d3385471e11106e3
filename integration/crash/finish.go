package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// finish starts the target once more, without faults, has every sender try
// again until it is answered, waits until everything is settled, and holds
// the whole database against the oracle's log. It returns how long settling
// took.
func (c *campaign) finish(ctx context.Context) (time.Duration, error) {
	p, err := c.t.start(c.sabotage)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	c.o.begin()
	took, err := p.WaitReady(c.t.readyURL(), 2*readyIn)
	if err != nil || took > readyIn {
		c.o.violate("I9: the last start: ready after %s: %v", took, err)
		return 0, nil
	}
	c.slowest = max(c.slowest, took)
	begin := time.Now()
	for e := c.o.nextUnanswered(); e != nil; e = c.o.nextUnanswered() {
		if err := c.load.send(ctx, sendAgain, e); err != nil {
			return 0, err
		}
	}
	if err := c.settled(begin.Add(lease + maxBackoff + readyIn)); err != nil {
		return 0, err
	}
	settled := time.Since(begin)
	if err := c.audit(p); err != nil {
		return 0, err
	}
	if err := c.whole(); err != nil {
		return 0, err
	}
	if !c.t.ledger {
		if err := c.admin(); err != nil {
			return 0, err
		}
		if err := p.Stop(15 * time.Second); err != nil {
			c.o.violate("the last stop: %v", err)
		}
	}
	p.Kill()
	if err := c.t.searchOutput(c.o); err != nil {
		return 0, err
	}
	return settled, c.integrity()
}

// settled waits until no event is pending or claimed: I7.
func (c *campaign) settled(deadline time.Time) error {
	a, err := openAuditor(c.t, c.o)
	if err != nil {
		return err
	}
	defer a.release()
	for {
		var open int
		if err := a.db.QueryRow(`SELECT count(*) FROM ichido_events WHERE state IN (0, 1)`).Scan(&open); err != nil {
			return fmt.Errorf("count open events: %w", err)
		}
		if open == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			c.o.violate("I7: %d events are stuck", open)
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// whole compares every row with the oracle's log as it is on the disk.
func (c *campaign) whole() error {
	said, err := c.o.log.read()
	if err != nil {
		return err
	}
	a, err := openAuditor(c.t, c.o)
	if err != nil {
		return err
	}
	defer a.release()
	rows, err := a.db.Query(`SELECT hash, state, purged, attempts, body FROM ichido_events LEFT JOIN ichido_bodies USING (seq)`)
	if err != nil {
		return fmt.Errorf("audit all rows: %w", err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var hash, body []byte
		var state, attempts int
		var purged bool
		if err := rows.Scan(&hash, &state, &purged, &attempts, &body); err != nil {
			return fmt.Errorf("audit all rows: %w", err)
		}
		n++
		var h [hashedLength]byte
		copy(h[:], hash)
		sent, ok := said.bodies[h]
		sum := sha256.Sum256(body)
		if !ok || !(purged && body == nil) && !bytes.Equal(sent[:], sum[:]) {
			c.o.violate("I1: a row is not what the log says was sent")
		}
		if e := c.o.event(h); e != nil && state == stateDone && e.source.forwarded && (!e.applied || attempts < e.forwarded) {
			c.o.violate("I2: event %d of %s is done after %d attempts; applied at the destination: %t, attempts seen there: %d",
				e.n, e.source.name, attempts, e.applied, e.forwarded)
		}
		delete(said.acked, h)
		delete(said.bodies, h)
	}
	if len(said.acked) > 0 {
		c.o.violate("I1: %d identities that the log says were acknowledged have no row", len(said.acked))
	}
	if len(said.bodies) > 0 {
		c.o.violate("%d events that were sent until they were answered have no row", len(said.bodies))
	}
	c.finalRows = n
	return rows.Err()
}

func (o *oracle) event(hash [hashedLength]byte) *event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byHash[hash]
}

// statistics are the counts that the process shows.
type statistics struct {
	Total     map[string]int `json:"total"`
	CountedAt time.Time      `json:"counted_at"`
	Purged    int            `json:"purged"`
}

// statistics asks for counts until they are as new as since: they are kept for
// a while.
func (c *campaign) statistics(since time.Time) (stats statistics, text []byte, err error) {
	for ; time.Since(since) < time.Minute; time.Sleep(200 * time.Millisecond) {
		if text, err = c.ask("/v1/stats"); err != nil {
			return stats, nil, err
		}
		stats = statistics{}
		if err := json.Unmarshal(text, &stats); err != nil {
			return stats, nil, fmt.Errorf("read statistics: %w", err)
		}
		if stats.CountedAt.After(since) {
			return stats, text, nil
		}
	}
	return stats, nil, errors.New("read statistics: they are a minute old")
}

// admin compares the counts that the process shows with the rows, and looks
// for secrets in its metrics: I4 and I8.
func (c *campaign) admin() error {
	stats, text, err := c.statistics(time.Now())
	if err != nil {
		return err
	}
	sum := stats.Purged
	for _, n := range stats.Total {
		sum += n
	}
	if sum != c.finalRows || stats.Total["pending"]+stats.Total["claimed"]+stats.Total["dead"] != 0 {
		c.o.violate("I4: the statistics say %v and %d purged, and there are %d rows", stats.Total, stats.Purged, c.finalRows)
	}
	metrics, err := c.ask("/metrics")
	if err != nil {
		return err
	}
	for _, canary := range c.t.canaries() {
		if bytes.Contains(metrics, []byte(canary)) || bytes.Contains(text, []byte(canary)) {
			c.o.violate("I8: the admin listener shows a secret")
		}
	}
	return nil
}

func (c *campaign) ask(path string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.t.admin+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the admin listener: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask the admin listener for %s: it answered %d", path, res.StatusCode)
	}
	return text, err
}

// integrity has SQLite check the whole file once nobody uses it.
func (c *campaign) integrity() error {
	a, err := openAuditor(c.t, c.o)
	if err != nil {
		return err
	}
	defer a.release()
	var verdict string
	if err := a.db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil {
		return fmt.Errorf("check integrity: %w", err)
	}
	if verdict != "ok" {
		c.o.violate("the database is damaged: %s", verdict)
	}
	return nil
}
