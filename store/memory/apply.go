package memory

import (
	"context"
	"fmt"

	"ichido.dev/ichido"
)

// Apply returns an [ichido.Applier] that keeps an event's row only when h
// returned nil. What h itself changes is h's own: memory has no transaction
// to undo it. h runs under the store's lock and must not call the store.
func (s *Store) Apply(h func(ctx context.Context, e *ichido.Event) error) ichido.Applier {
	return &applier{s, h}
}

type applier struct {
	store *Store
	h     func(ctx context.Context, e *ichido.Event) error
}

// Accept implements [ichido.Applier].
func (a *applier) Accept(ctx context.Context, r *ichido.Record, e *ichido.Event) (ichido.Verdict, error) {
	s := a.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("apply event: %w", err)
	}
	row := *r
	row.State, row.Outcome, row.Cause = ichido.Done, ichido.Applied, ""
	v := s.put(&row)
	if v != ichido.Accepted {
		return v, nil
	}
	have := s.byHash[r.Hash]
	have.Attempts = 1
	if err := a.run(ctx, e); err != nil {
		s.seq--
		s.bySeq = s.bySeq[:len(s.bySeq)-1]
		delete(s.byHash, r.Hash)
		return 0, err
	}
	return v, nil
}

// Complete implements [ichido.Applier].
func (a *applier) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event) error {
	s := a.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("apply event: %w", err)
	}
	row := s.byHash[r.Hash]
	if row == nil || r.Token == 0 || row.Token != r.Token {
		return ichido.ErrLeaseLost
	}
	row.Started = true
	err := a.run(ctx, e)
	if row.Started = false; err != nil {
		return err
	}
	return s.settle(&ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied, Confirmed: r.Confirmed})
}

// run calls the handler and turns its panic into an error. A handler that
// returns after its deadline was too late, whatever it says.
func (a *applier) run(ctx context.Context, e *ichido.Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	if err := a.h(ctx, e); err != nil {
		return err
	}
	return ctx.Err()
}
