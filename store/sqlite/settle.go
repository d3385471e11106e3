package sqlite

import (
	"context"
	"fmt"

	"ichido.dev/ichido"
)

// Settle implements [ichido.Queue].
func (s *Store) Settle(ctx context.Context, settlements []ichido.Settlement) ([]error, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	errs := make([]error, len(settlements))
	o := &op{name: "settle events", phase: settling, rows: len(settlements)}
	for i := range settlements {
		o.bytes += int64(len(settlements[i].Confirmed))
	}
	o.run = func(t *txn) (err error) {
		for i := range settlements {
			if errs[i], err = t.settle(&settlements[i]); err != nil {
				return fmt.Errorf("settle event: %w", err)
			}
		}
		return nil
	}
	if err := s.do(ctx, o, false); err != nil {
		return nil, err
	}
	return errs, nil
}

// settle ends one claim. The first error is the verdict about it.
func (t *txn) settle(e *ichido.Settlement) (verdict, err error) {
	var outcome, cause string
	var due, settled int64
	switch e.State {
	case ichido.Done:
		outcome, settled = e.Outcome, t.now
	case ichido.Dead, ichido.Quarantined:
		cause, settled = cleanCause(e.Cause), t.now
	case ichido.Pending:
		cause, due = cleanCause(e.Cause), t.now+e.After.Milliseconds()
	default:
		return fmt.Errorf("settle event: %q is not a state to settle to", e.State), nil
	}
	r := e.Record
	if r.Token == 0 {
		return ichido.ErrLeaseLost, nil
	}
	back := bit(e.GiveBack && e.State == ichido.Pending)
	n, err := rowsAffected(t.w.settle, stateCode(e.State), outcome, cause, settled, due, back, r.Seq, int64(r.Token))
	if err != nil || n == 0 {
		return held(n), err
	}
	if e.Confirmed != nil {
		if len(e.Confirmed) > maxBlob {
			return nil, fmt.Errorf("the fetched state of %s has %d bytes, more than SQLite stores", r.ID(), len(e.Confirmed))
		}
		if _, err := t.w.confirm.Exec(e.Confirmed, r.Seq); err != nil {
			return nil, fmt.Errorf("keep fetched state: %w", err)
		}
	}
	if e.State == ichido.Pending {
		t.wake = true
	}
	return nil, nil
}
