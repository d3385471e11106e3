package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/storetest"
)

// TestTheSuiteCatchesInAppliersAndClaims breaks what is beside the queue.
func TestTheSuiteCatchesInAppliersAndClaims(t *testing.T) {
	for _, b := range []struct {
		name string
		sees string
		make func(m *memory.Store, st *storetest.Store)
	}{
		{
			"a body kept of what is purged", "Put/PurgedKeepsTheKeyAlone",
			func(m *memory.Store, st *storetest.Store) { st.Queue = &hoarder{m} },
		},
		{
			"a handler under the context of the request", "Applier/ContextEndsOnlyTheWait",
			breakApplier(func(a *broken) { a.outer = true }),
		},
		{
			"an ended wait that is the event's failure", "Applier/AnEndedWaitRunsNothing",
			breakApplier(func(a *broken) { a.blames = true }),
		},
		{
			"a handler that runs although its wait has ended", "Applier/AnEndedWaitRunsNothing",
			breakApplier(func(a *broken) { a.runs = true }),
		},
		{
			"a row that stays without its effect", "Applier/FailureKeepsNothing",
			breakApplier(func(a *broken) { a.keeps = true }),
		},
		{
			"a completion that ignores the token", "Applier/StaleTokenRunsNothing",
			breakApplier(func(a *broken) { a.tokenless = true }),
		},
		{
			"held claims that nobody sees", "Claims/HeldAreListed",
			func(m *memory.Store, st *storetest.Store) { st.Archive = &discreet{m} },
		},
		{
			"a release by anybody", "Claims/OnlyTheTokenCompletesOrReleases",
			func(m *memory.Store, st *storetest.Store) { st.Claims = &open{m.Claims(), map[string]string{}} },
		},
	} {
		t.Run(b.name, func(t *testing.T) {
			seen(t, b.sees, func(_ testing.TB, s storetest.Setup) *storetest.Store {
				m, st := base(s)
				st.Claims, st.Crash = m.Claims(), nil
				b.make(m, st)
				return st
			})
		})
	}
}

// hoarder keeps every body.
type hoarder struct{ *memory.Store }

func (s *hoarder) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	all = append([]ichido.Record{}, all...)
	for i := range all {
		all[i].Purged = false
	}
	return s.Store.Put(ctx, all)
}

// broken is an Applier with one thing wrong.
type broken struct {
	m *memory.Store
	h ichido.Handler

	outer, blames, runs, keeps, tokenless bool
}

func breakApplier(how func(*broken)) func(*memory.Store, *storetest.Store) {
	return func(m *memory.Store, st *storetest.Store) {
		st.KeepEffects(func(h ichido.Handler) ichido.Applier {
			a := &broken{m: m, h: h}
			how(a)
			return a
		})
	}
}

// inner is the sound Applier for a call with that context.
func (a *broken) inner(ctx context.Context) ichido.Applier {
	return a.m.Apply(func(mine context.Context, e *ichido.Event) error {
		if a.outer {
			mine = ctx
		}
		return a.h(mine, e)
	})
}

func (a *broken) after(ctx context.Context, e *ichido.Event, err error) error {
	if a.runs && ctx.Err() != nil && errors.Is(err, ichido.ErrUnavailable) {
		return errors.Join(err, a.h(ctx, e))
	}
	if a.blames && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (a *broken) Accept(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) (ichido.Verdict, error) {
	v, err := a.inner(ctx).Accept(ctx, r, e, limit)
	if a.keeps && err != nil {
		row := *r
		row.State, row.Outcome = ichido.Done, ichido.Applied
		_, perr := a.m.Put(ctx, []ichido.Record{row})
		err = errors.Join(err, perr)
	}
	return v, a.after(ctx, e, err)
}

func (a *broken) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) error {
	if a.tokenless {
		r = (&tokenless{a.m}).current(*r)
	}
	return a.after(ctx, e, a.inner(ctx).Complete(ctx, r, e, limit))
}

// discreet tells no keys.
type discreet struct{ *memory.Store }

func (s *discreet) Stats(ctx context.Context) (ichido.Stats, error) {
	st, err := s.Store.Stats(ctx)
	st.PendingKeys = nil
	return st, err
}

// open releases a claim for everybody who knows its key.
type open struct {
	ichido.Claims
	tokens map[string]string
}

func (c *open) Claim(ctx context.Context, key string) (ichido.Verdict, string, error) {
	v, token, err := c.Claims.Claim(ctx, key)
	if v == ichido.Accepted {
		c.tokens[key] = token
	}
	return v, token, err
}

func (c *open) Release(ctx context.Context, key, _ string) error {
	return c.Claims.Release(ctx, key, c.tokens[key])
}
