package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// claim names one claim of one event.
type claim struct {
	hash  [16]byte
	token uint64
}

// phase is how far a claim has come.
type phase uint8

const (
	unstarted phase = iota
	running
	ended // the handler, not the claim: how it ended is not settled yet
)

// Claim implements [ichido.Queue].
func (s *Store) Claim(ctx context.Context, want ichido.Want) ([]ichido.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.reap(now)

	var out []ichido.Record
	token := rule.Token()
	for _, row := range s.choose(want, now) {
		row.State, row.Due, row.Token = ichido.Claimed, rule.Milliseconds(now.Add(want.Lease)), token
		row.Attempts++
		row.Started = false
		out = append(out, clone(row))
	}
	return out, nil
}

// reap makes events due again whose lease has ended. Where no handler started,
// no attempt was made. Their token stays: who holds it may still settle or
// extend, as long as nobody claimed since.
func (s *Store) reap(now time.Time) {
	for _, row := range s.bySeq {
		if row.State != ichido.Claimed || row.Due.After(now) {
			continue
		}
		row.State = ichido.Pending
		c := claim{row.Hash, row.Token}
		s.lapsed[row.Hash] = s.marks[c]
		switch s.marks[c] {
		case unstarted:
			row.Attempts--
		case running:
			row.Deaths++
		case ended:
			delete(s.marks, c)
		}
	}
}

// choose returns the rows to claim, oldest due first.
func (s *Store) choose(want ichido.Want, now time.Time) []*ichido.Record {
	var due []*ichido.Record
	for _, row := range s.bySeq {
		if row.State == ichido.Pending && !row.Due.After(now) {
			due = append(due, row)
		}
	}
	slices.SortStableFunc(due, func(a, b *ichido.Record) int { return a.Due.Compare(b.Due) })

	slots := map[string]int{}
	var chosen []*ichido.Record
	take := func(row *ichido.Record) bool {
		if slots[row.Source] >= want.Slots[row.Source] {
			return false
		}
		slots[row.Source]++
		chosen = append(chosen, row)
		return true
	}
	for source, wanted := range want.Suspects { // first, so that they are not starved by the others
		var least *ichido.Record
		for _, row := range due {
			if wanted && row.Source == source && row.Deaths > 0 && (least == nil || row.Deaths < least.Deaths) {
				least = row
			}
		}
		if least != nil {
			take(least)
		}
	}
	for _, row := range due {
		if row.Deaths == 0 {
			take(row)
		}
	}
	slices.SortFunc(chosen, func(a, b *ichido.Record) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	var sum int64
	for i, row := range chosen {
		sum += row.Size
		if want.Bytes > 0 && sum > want.Bytes && i > 0 {
			return chosen[:i]
		}
	}
	return chosen
}

// held returns the row that is claimed with the record's token, or nil.
func (s *Store) held(r *ichido.Record) *ichido.Record {
	row := s.byHash[r.Hash]
	if row == nil || r.Token == 0 || row.Token != r.Token {
		return nil
	}
	if row.State == ichido.Pending { // reaped, and the process did not die
		row.State = ichido.Claimed
		switch s.lapsed[r.Hash] {
		case unstarted:
			row.Attempts++
		case running:
			row.Deaths--
		}
		row.Started = s.marks[claim{r.Hash, r.Token}] == running
	}
	return row
}

// Mark implements [ichido.Queue].
func (s *Store) Mark(r *ichido.Record, isRunning bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := claim{r.Hash, r.Token}
	switch {
	case r.Token == 0:
		return
	case isRunning:
		s.marks[c] = running
	case s.marks[c] == running:
		s.marks[c] = ended
	}
	row := s.byHash[r.Hash]
	if row != nil && row.State == ichido.Claimed && row.Token == r.Token {
		row.Started = isRunning
	}
}

// Extend implements [ichido.Queue].
func (s *Store) Extend(ctx context.Context, records []*ichido.Record, d time.Duration) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("extend leases: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(records))
	for i, r := range records {
		row := s.held(r)
		if row == nil {
			errs[i] = ichido.ErrLeaseLost
			continue
		}
		row.Due = rule.Milliseconds(s.now().Add(d))
	}
	return errs, nil
}

// Settle implements [ichido.Queue].
func (s *Store) Settle(ctx context.Context, settlements []ichido.Settlement) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle events: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(settlements))
	for i := range settlements {
		errs[i] = s.settle(&settlements[i])
	}
	return errs, nil
}

func (s *Store) settle(t *ichido.Settlement) error {
	switch t.State {
	case ichido.Pending, ichido.Done, ichido.Dead, ichido.Quarantined:
	default:
		return fmt.Errorf("settle event: %q is not a state to settle to", t.State)
	}
	row := s.held(t.Record)
	delete(s.marks, claim{t.Record.Hash, t.Record.Token})
	if row == nil {
		return ichido.ErrLeaseLost
	}
	delete(s.lapsed, row.Hash)
	row.State, row.Outcome, row.Cause = t.State, "", rule.Cause(t.Cause)
	row.Token, row.Started, row.Due = 0, false, time.Time{}
	if t.Confirmed != nil {
		row.Confirmed = bytes.Clone(t.Confirmed)
	}
	switch t.State {
	case ichido.Done:
		row.Outcome, row.SettledAt = t.Outcome, s.now()
	case ichido.Pending:
		row.Due = rule.Milliseconds(s.now().Add(t.After))
		if t.GiveBack {
			row.Attempts--
		} else {
			row.Deaths = 0 // the attempt ended, and the process did not
		}
		s.signal()
	default:
		row.SettledAt = s.now()
	}
	return nil
}

func clone(row *ichido.Record) ichido.Record {
	r := *row
	r.Header, r.Body, r.Confirmed = bytes.Clone(row.Header), bytes.Clone(row.Body), bytes.Clone(row.Confirmed)
	return r
}
