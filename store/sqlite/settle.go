package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Settle implements [ichido.Queue].
func (s *Store) Settle(ctx context.Context, settlements []ichido.Settlement) ([]error, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	b := settling{all: settlements, errs: make([]error, len(settlements))}
	o := &op{name: "settle events", phase: settlePhase, rows: len(settlements), run: b.run}
	seen := make(map[int64]bool, len(settlements))
	for i := range settlements {
		o.bytes += int64(len(settlements[i].Confirmed))
		seen[settlements[i].Record.Seq] = true
	}
	b.singly = len(seen) < len(settlements)
	if err := s.do(ctx, o, false); err != nil {
		return nil, err
	}
	for i := range settlements {
		s.running.forget(claim{settlements[i].Record.Seq, settlements[i].Record.Token})
	}
	return b.errs, nil
}

// errAgain asks for the whole transaction to be rolled back and run again: an
// operation found that its quick way does not do.
var errAgain = errors.New("run the transaction again")

// settling is the settlements of one call.
type settling struct {
	all    []ichido.Settlement
	errs   []error
	singly bool // in order, one by one: a lease was lost, or a record is there twice
}

// end is how claims end that one statement can settle together.
type end struct {
	token          uint64
	state, back    int
	deaths         int // 1 to keep them, 0 to forget them
	outcome, cause string
	dueAfter       int64 // of pending, ms
	ok             bool
}

func endOf(s *ichido.Settlement) end {
	e := end{token: s.Record.Token, state: stateCode(s.State), deaths: 1, cause: rule.Cause(s.Cause), ok: true}
	switch s.State {
	case ichido.Done:
		e.outcome = s.Outcome
	case ichido.Dead, ichido.Quarantined:
	case ichido.Pending:
		// A counted attempt that ended shows that the event does not end processes.
		e.back, e.deaths, e.dueAfter = bit(s.GiveBack), bit(s.GiveBack), s.After.Milliseconds()
	default:
		e.ok = false
	}
	return e
}

// run settles the claims that end alike with one statement for all of them.
// That one says how many it settled; when it is not all of them, the
// transaction is run again with one statement for each.
func (b *settling) run(t *txn) error {
	if b.singly {
		for i := range b.all {
			if err := b.one(t, i); err != nil {
				return err
			}
		}
		return nil
	}
	alike := map[end][]int{}
	for i := range b.all {
		if e := endOf(&b.all[i]); e.ok && e.token != 0 && b.all[i].Confirmed == nil {
			alike[e] = append(alike[e], i)
		} else if err := b.one(t, i); err != nil {
			return err
		}
	}
	for e, which := range alike {
		if len(which) == 1 {
			if err := b.one(t, which[0]); err != nil {
				return err
			}
			continue
		}
		list := seqList(len(which), func(i int) int64 { return b.all[which[i]].Record.Seq })
		n, err := t.end(&e, t.w.settleAll, list)
		if err != nil {
			return fmt.Errorf("settle events: %w", err)
		}
		if n != int64(len(which)) {
			b.singly = true
			return errAgain
		}
	}
	return nil
}

func (b *settling) one(t *txn, i int) (err error) {
	if b.errs[i], err = t.settle(&b.all[i]); err != nil {
		return fmt.Errorf("settle event: %w", err)
	}
	return nil
}

// settle ends one claim. The first error is the verdict about it.
func (t *txn) settle(s *ichido.Settlement) (verdict, err error) {
	e := endOf(s)
	if !e.ok {
		return fmt.Errorf("settle event: %q is not a state to settle to", s.State), nil
	}
	if e.token == 0 {
		return ichido.ErrLeaseLost, nil
	}
	n, err := t.end(&e, t.w.settle, s.Record.Seq)
	if err != nil || n == 0 {
		return held(n), err
	}
	if s.Confirmed != nil {
		if len(s.Confirmed) > maxBlob {
			return nil, fmt.Errorf("the fetched state of %s has %d bytes, more than SQLite stores", s.Record.ID(), len(s.Confirmed))
		}
		if _, err := t.w.confirm.Exec(s.Confirmed, s.Record.Seq); err != nil {
			return nil, fmt.Errorf("keep fetched state: %w", err)
		}
	}
	return nil, nil
}

// end runs a statement that settles the one or the many events named.
func (t *txn) end(e *end, stmt *sql.Stmt, which any) (int64, error) {
	settledAt, due := int64(0), int64(0)
	if e.state == statePending {
		due = t.now + e.dueAfter
		t.wake = true
	} else {
		settledAt = t.now
	}
	return rowsAffected(stmt, e.state, e.outcome, e.cause, settledAt, due, e.back, e.deaths, which, int64(e.token))
}
