package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
)

// KeepEffects sets Apply and Effects of a store whose handlers have no
// transaction to make an effect in: what a handler did is kept when the store
// says that the event was applied, and forgotten otherwise.
func (s *Store) KeepEffects(apply func(ichido.Handler) ichido.Applier) {
	k := &kept{}
	s.Effects = func(testing.TB) []string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.Clone(k.names)
	}
	s.Apply = func(h Handler) ichido.Applier { return &keeper{apply: apply, h: h, to: k} }
}

type kept struct {
	mu    sync.Mutex // guards names
	names []string
}

// keeper is an Applier over one that knows no effects.
type keeper struct {
	apply func(ichido.Handler) ichido.Applier
	h     Handler
	to    *kept
}

func (a *keeper) Accept(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) (ichido.Verdict, error) {
	var v ichido.Verdict
	err := a.run(func(inner ichido.Applier) (err error) {
		v, err = inner.Accept(ctx, r, e, limit)
		return err
	})
	return v, err
}

func (a *keeper) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) error {
	return a.run(func(inner ichido.Applier) error { return inner.Complete(ctx, r, e, limit) })
}

// run makes one call, and ends the effects with it.
func (a *keeper) run(call func(ichido.Applier) error) error {
	var mu sync.Mutex // guards made and over
	var made []string
	over := false
	err := call(a.apply(func(ctx context.Context, _ *ichido.Event) error {
		return a.h(ctx, func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			if over {
				return errors.New("the transaction is over")
			}
			made = append(made, name)
			return nil
		})
	}))
	mu.Lock()
	defer mu.Unlock()
	if over = true; err != nil {
		return err
	}
	a.to.mu.Lock()
	defer a.to.mu.Unlock()
	a.to.names = append(a.to.names, made...)
	return nil
}
