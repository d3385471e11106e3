// Package memory keeps events and inline claims in maps, behind one mutex. It
// is the reference model of the store contract: what the other stores do with
// SQL is written here as plain code, and simulations use it as their oracle.
// It serves the inline mode and development.
//
// It does not keep anything across a restart, so nothing in it is durable:
// a service that must not lose an acknowledged event uses another store. It
// never evicts: at capacity it removes what is past its retention, and
// refuses when that made no room.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Options are the settings of a [Store]. The zero value is ready to use.
type Options struct {
	// Clock tells the time of due dates, leases and retention. Default time.Now.
	Clock func() time.Time

	// Keys is how long the key of a done event or of a completed claim is
	// kept. What is older is removed when room is needed. Default 24 hours.
	Keys time.Duration

	// Capacity is the number of events, and again the number of claims, that
	// are held at once. Default 10,000.
	Capacity int

	// Running is the number of claims that may be held by running handlers
	// at once. Default 10,000.
	Running int
}

// Store is an [ichido.Queue] and an [ichido.Archive] in memory.
type Store struct {
	opt    Options
	claims claims
	ready  chan struct{}

	applying chan struct{} // holds one element while an event is applied; taken before mu

	mu      sync.Mutex // guards everything below
	seq     int64
	byHash  map[[16]byte]*ichido.Record
	bySeq   []*ichido.Record // ascending
	removed int
	marks   map[claim]phase    // of claims that are not settled; none for one that has not started
	lapsed  map[[16]byte]phase // what an event's claim was in when its lease ended, where that was noted last
}

var (
	_ ichido.Queue   = (*Store)(nil)
	_ ichido.Archive = (*Store)(nil)
)

// New returns an empty store.
func New(o Options) *Store {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Keys == 0 {
		o.Keys = 24 * time.Hour
	}
	if o.Capacity == 0 {
		o.Capacity = 10_000
	}
	if o.Running == 0 {
		o.Running = 10_000
	}
	return &Store{
		opt:    o,
		claims: claims{opt: o, held: map[string]hold{}, completed: map[string]time.Time{}},
		ready:  make(chan struct{}, 1),

		applying: make(chan struct{}, 1),

		byHash: map[[16]byte]*ichido.Record{},
		marks:  map[claim]phase{},
		lapsed: map[[16]byte]phase{},
	}
}

// now is the store's clock in the resolution that all stores keep.
func (s *Store) now() time.Time { return rule.Milliseconds(s.opt.Clock()) }

// Put implements [ichido.Queue].
func (s *Store) Put(ctx context.Context, records []ichido.Record) ([]ichido.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("put events: %w", err)
	}
	if err := rule.CheckPut(records); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	verdicts := make([]ichido.Verdict, len(records))
	for i := range records {
		verdicts[i] = s.put(&records[i])
	}
	return verdicts, nil
}

func (s *Store) put(r *ichido.Record) ichido.Verdict {
	if have, ok := s.byHash[r.Hash]; ok {
		if have.Fingerprint != r.Fingerprint {
			return ichido.Conflict
		}
		have.Copies++
		return ichido.Duplicate
	}
	if len(s.bySeq) >= s.opt.Capacity {
		s.removeOld(s.now().Add(-s.opt.Keys))
	}
	if len(s.bySeq) >= s.opt.Capacity {
		return ichido.Full
	}
	r.Seq = s.insert(r).Seq
	return ichido.Accepted
}

// insert copies r as a new row.
func (s *Store) insert(r *ichido.Record) *ichido.Record {
	s.seq++
	row := &ichido.Record{
		Hash: r.Hash, Source: r.Source, Key: r.Key, Type: r.Type, TypeSigned: r.TypeSigned,
		Fingerprint: r.Fingerprint, Strength: r.Strength, Scheme: r.Scheme, Secret: r.Secret,
		Time: rule.Milliseconds(r.Time), ReceivedAt: rule.Milliseconds(r.ReceivedAt),
		Header: bytes.Clone(r.Header), Body: bytes.Clone(r.Body),
		State: r.State, Outcome: r.Outcome, Cause: rule.Cause(r.Cause),
		Seq: s.seq, Size: int64(len(r.Body)),
	}
	if r.Purged {
		row.Header, row.Body, row.Purged = nil, nil, true
	}
	switch row.State {
	case ichido.Claimed:
		row.Token, row.Attempts = r.Token, 1
		row.Due = rule.Milliseconds(s.now().Add(r.Lease))
	case "", ichido.Pending:
		row.State, row.Due = ichido.Pending, s.now()
		s.signal()
	default:
		row.SettledAt = s.now()
	}
	s.byHash[row.Hash] = row
	s.bySeq = append(s.bySeq, row)
	return row
}

// remove forgets every row for which gone reports true.
func (s *Store) remove(gone func(*ichido.Record) bool) (n int) {
	kept := s.bySeq[:0]
	for _, row := range s.bySeq {
		if gone(row) {
			delete(s.byHash, row.Hash)
			n++
			continue
		}
		kept = append(kept, row)
	}
	clear(s.bySeq[len(kept):])
	s.bySeq = kept
	s.removed += n
	return n
}

func (s *Store) removeOld(before time.Time) {
	s.remove(func(row *ichido.Record) bool {
		return row.State == ichido.Done && row.SettledAt.Before(before)
	})
}

// signal says that an event may have become due.
func (s *Store) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Ready implements [ichido.Queue].
func (s *Store) Ready() <-chan struct{} { return s.ready }
