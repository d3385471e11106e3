package memory

import (
	"context"
	"fmt"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Apply returns an [ichido.Applier] that keeps an event's row only when h
// returned nil. What h itself changes is h's own: memory has no transaction
// to undo it. h runs under the store's lock and must not call the store. One
// that has not returned when its context ends is left to itself.
func (s *Store) Apply(h func(ctx context.Context, e *ichido.Event) error) ichido.Applier {
	return &applier{s, h}
}

type applier struct {
	store *Store
	h     func(ctx context.Context, e *ichido.Event) error
}

// begin takes the store's lock, which the caller gives back with end. Those
// that apply wait in a line of their own, because a wait for a mutex has no end.
func (s *Store) begin(ctx context.Context) error {
	select {
	case s.applying <- struct{}{}:
	case <-ctx.Done():
		return unavailable(ctx)
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		s.end()
		return unavailable(ctx)
	}
	return nil
}

func (s *Store) end() {
	s.mu.Unlock()
	<-s.applying
}

func unavailable(ctx context.Context) error {
	return fmt.Errorf("apply event: %w: %w", ichido.ErrUnavailable, ctx.Err())
}

// Accept implements [ichido.Applier].
func (a *applier) Accept(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) (ichido.Verdict, error) {
	s := a.store
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	row := *r
	row.State, row.Outcome, row.Cause = ichido.Done, ichido.Applied, ""
	v := s.put(&row)
	if v != ichido.Accepted {
		return v, nil
	}
	have := s.byHash[r.Hash]
	have.Attempts = 1
	if err := a.run(ctx, e, limit); err != nil {
		s.seq--
		s.bySeq = s.bySeq[:len(s.bySeq)-1]
		delete(s.byHash, r.Hash)
		return 0, err
	}
	return v, nil
}

// Complete implements [ichido.Applier].
func (a *applier) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) error {
	s := a.store
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	var before ichido.Record
	if row := s.byHash[r.Hash]; row != nil {
		before = *row
	}
	row := s.held(r)
	if row == nil {
		return ichido.ErrLeaseLost
	}
	if err := a.run(ctx, e, limit); err != nil {
		*row = before
		return err
	}
	return s.settle(&ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied, Confirmed: r.Confirmed})
}

// run calls the handler with a context that ends after limit.
func (a *applier) run(ctx context.Context, e *ichido.Event, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return rule.Run(ctx, func(ctx context.Context) error { return a.h(ctx, e) })
}
