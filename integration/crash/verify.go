package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // the database driver
)

// stateDone is how the state is stored.
const stateDone = 2

// auditor looks into the database from outside, while the process serves, so
// that the process itself has done the recovery.
type auditor struct {
	t    *target
	o    *oracle
	db   *sql.DB
	seen int64 // seq up to which rows were looked at
	rows int
}

func openAuditor(t *target, o *oracle) (*auditor, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: t.db}).EscapedPath()+"?mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return nil, fmt.Errorf("open the database to audit it: %w", err)
	}
	return &auditor{t: t, o: o, db: db}, nil
}

// release closes the connections: none may be open when the process dies, or
// the last one would change the files.
func (a *auditor) release() error { return a.db.Close() }

// check looks at the rows that are new, at the counts, and at every event that
// was acknowledged.
func (a *auditor) check() error {
	if a.rows == 0 {
		var tables int
		if err := a.db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name = 'ichido_events'`).Scan(&tables); err != nil {
			return fmt.Errorf("audit the schema: %w", err)
		}
		if tables == 0 {
			a.acknowledged()
			return nil
		}
	}
	if err := a.newRows(); err != nil {
		return err
	}
	if err := a.counts(); err != nil {
		return err
	}
	a.acknowledged()
	if a.t.ledger {
		return a.total()
	}
	return nil
}

// newRows looks at rows that were not there before: I1 and I3.
func (a *auditor) newRows() error {
	rows, err := a.db.Query(`SELECT e.seq, e.hash, e.source, e.state, e.purged, b.body FROM ichido_events e
		LEFT JOIN ichido_bodies b USING (seq) WHERE e.seq > ? ORDER BY e.seq`, a.seen)
	if err != nil {
		return fmt.Errorf("audit rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var hash, body []byte
		var name string
		var state int
		var purged bool
		if err := rows.Scan(&seq, &hash, &name, &state, &purged, &body); err != nil {
			return fmt.Errorf("audit rows: %w", err)
		}
		a.seen = seq
		a.rows++
		a.row(hash, name, state, purged, body)
	}
	return rows.Err()
}

func (a *auditor) row(hash []byte, name string, state int, purged bool, body []byte) {
	var h [hashedLength]byte
	copy(h[:], hash)
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	sum := sha256.Sum256(body)
	e := a.o.byHash[h]
	switch {
	case e == nil && a.o.forged[sum]:
		a.o.violateLocked("I3: there is a row for a forged delivery of %s", name)
	case e == nil:
		a.o.violateLocked("I3: there is a row of %s that no sender sent", name)
	case e.stored:
		a.o.violateLocked("I6: there are two rows for event %d of %s", e.n, name)
	case e.source.name != name:
		a.o.violateLocked("I1: event %d of %s is stored as one of %s", e.n, e.source.name, name)
	case purged && body == nil && e.source.purges && state == stateDone:
		e.stored = true
	case !bytes.Equal(sum[:], e.body[:]):
		a.o.violateLocked("I1: event %d of %s has other bytes than were sent", e.n, name)
	default:
		e.stored = true
	}
}

// acknowledged checks that everything acknowledged has been seen: I1.
func (a *auditor) acknowledged() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	lost, first := 0, (*event)(nil)
	for _, e := range a.o.events {
		if e.acked && !e.stored {
			if lost++; first == nil {
				first = e
			}
		}
	}
	if lost > 0 {
		a.o.violateLocked("I1: %d acknowledged events are lost, the first is event %d of %s (conflict: %t)", lost, first.n, first.source.name, first.conflict)
	}
}

// counts checks that the states add up and that no row has gone: I4. A dead
// letter would be one too many: nothing here fails for good.
func (a *auditor) counts() error {
	var total, states, dead int
	err := a.db.QueryRow(`SELECT count(*), coalesce(sum(state BETWEEN 0 AND 4), 0), coalesce(sum(state = 3), 0) FROM ichido_events WHERE seq <= ?`, a.seen).
		Scan(&total, &states, &dead)
	if err != nil {
		return fmt.Errorf("audit counts: %w", err)
	}
	switch {
	case total != a.rows:
		a.o.violate("I1: %d rows were there, %d are there now", a.rows, total)
	case states != total:
		a.o.violate("I4: %d rows, %d of them in a known state", total, states)
	case dead > 0:
		var cause string
		_ = a.db.QueryRow(`SELECT cause FROM ichido_events WHERE state = 3 LIMIT 1`).Scan(&cause)
		a.o.violate("there are %d dead letters, one because of: %s", dead, cause)
	}
	return nil
}

// total checks, in one snapshot, that the ledger holds exactly what is done:
// I2.
func (a *auditor) total() error {
	var total, sum, applied, distinct, done int
	err := a.db.QueryRow(`SELECT (SELECT total FROM ledger), coalesce(sum(amount), 0), count(*), count(DISTINCT id),
		(SELECT count(*) FROM ichido_events WHERE state = 2 AND outcome = 'applied') FROM applied`).
		Scan(&total, &sum, &applied, &distinct, &done)
	switch {
	case err != nil:
		return fmt.Errorf("audit the ledger: %w", err)
	case applied != distinct:
		a.o.violate("I2: %d events were applied %d times", distinct, applied)
	case total != sum:
		a.o.violate("I2: the total is %d, the sum of the applied events %d", total, sum)
	case applied != done:
		a.o.violate("I2: %d events are done, %d were applied", done, applied)
	}
	return nil
}

// searchOutput looks for secrets in what the process wrote: I8.
func (t *target) searchOutput(o *oracle) error {
	text, err := os.ReadFile(t.logs)
	if err != nil {
		return fmt.Errorf("search output: %w", err)
	}
	for i, canary := range t.canaries() {
		if bytes.Contains(text, []byte(canary)) {
			o.violate("I8: secret %d is in the output of %s", i+1, t.name)
		}
	}
	return nil
}
