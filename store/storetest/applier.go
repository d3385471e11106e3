package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func applierCases() []Case {
	return []Case{
		{"Applier/EffectAndEventAreOne", "the effect is there exactly when the event is done", applyAccept},
		{"Applier/FailureKeepsNothing", "a row without its effect would make the retry a duplicate", applyFails},
		{"Applier/OtherVerdictsRunNothing", "a handler that runs for a duplicate does its effect twice", applyVerdicts},
		{"Applier/PanicKeepsNothing", "a handler's bug must not take the store down", applyPanic},
		{"Applier/LimitEndsTheTransaction", "a handler that hangs would stop every other write", applyLimit},
		{"Applier/ContextEndsOnlyTheWait", "a crowd in front of the writer must not eat the time of a handler", applyBegun},
		{"Applier/AnEndedWaitRunsNothing", "an event that only waited has failed nobody", applyWait},
		{"Applier/HandlersErrorPassesThrough", "Permanent and RetryAfter are found by their type", applyErrors},
		{"Applier/CompletesAClaim", "a worker's effect and completion are one", applyComplete},
		{"Applier/StaleTokenRunsNothing", "a paused worker's effect would be the second one", applyStale},
		{"Applier/BesideOtherWrites", "in-request transactions and group commits share one writer", applyBeside},
	}
}

// limit is long enough that no handler outlives it that is not to.
const limit = time.Minute

// effects returns what is really there.
func (e *env) effects() []string {
	e.Helper()
	return append([]string{}, e.Effects(e.TB)...)
}

// once makes one effect.
func once(name string) Handler {
	return func(_ context.Context, effect func(string) error) error { return effect(name) }
}

// applied accepts r with h and fails unless that gives the verdict wanted.
func (e *env) applied(want ichido.Verdict, r ichido.Record, h Handler) {
	e.Helper()
	v, err := e.Apply(h).Accept(e.ctx, &r, new(ichido.Event), limit)
	if err != nil || v != want {
		e.Fatalf("accept %s: %v, %v, want %v", r.Key, v, err, want)
	}
}

func applyAccept(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	e.applied(ichido.Accepted, r, once("a"))
	e.same("effects", []string{"a"}, e.effects())
	want := r
	want.State, want.Outcome, want.Seq, want.Size, want.Attempts, want.SettledAt = ichido.Done, ichido.Applied, 1, int64(len(r.Body)), 1, e.clock.Now()
	e.same("event", want, e.get(r))
	if got := e.claim(want1()); len(got) != 0 {
		t.Error("an applied event was claimed")
	}
}

func want1() ichido.Want { return want(1) }

func applyFails(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	failed := errors.New("failed")
	v, err := e.Apply(func(_ context.Context, effect func(string) error) error {
		return errors.Join(effect("a"), failed)
	}).Accept(e.ctx, &r, new(ichido.Event), limit)
	if !errors.Is(err, failed) || errors.Is(err, ichido.ErrUnavailable) || v == ichido.Accepted {
		t.Errorf("got %v, %v", v, err)
	}
	e.same("effects", []string{}, e.effects())
	e.same("events", []string{}, keys(e.all()))
	e.applied(ichido.Accepted, r, once("a"))
	e.same("effects of the retry", []string{"a"}, e.effects())
}

func applyVerdicts(t testing.TB, open Open) {
	e := start(t, open, Setup{Capacity: 2})
	r := e.record("a")
	e.applied(ichido.Accepted, r, once("a"))
	never := func(context.Context, func(string) error) error {
		t.Error("the handler ran")
		return nil
	}
	e.applied(ichido.Duplicate, r, never)
	e.same("copies", 1, e.get(r).Copies)
	forged := r
	forged.Fingerprint[0] ^= 1
	e.applied(ichido.Conflict, forged, never)
	e.accept("pending")
	e.applied(ichido.Duplicate, e.record("pending"), never)
	e.applied(ichido.Full, e.record("third"), never)
	e.same("effects", []string{"a"}, e.effects())
}

func applyPanic(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	_, err := e.Apply(func(_ context.Context, effect func(string) error) error {
		if err := effect("a"); err != nil {
			t.Error(err)
		}
		panic("at the disco")
	}).Accept(e.ctx, &r, new(ichido.Event), limit)
	if err == nil || errors.Is(err, ichido.ErrUnavailable) {
		t.Errorf("got %v, want the panic as an error", err)
	}
	e.same("effects", []string{}, e.effects())
	e.applied(ichido.Accepted, r, once("a"))
}

// applyLimit has handlers that ignore that their context has ended, while a
// transaction of their own is applied and while a claim is completed.
func applyLimit(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("b")
	claimed := e.claim1()
	before := e.get(*claimed)
	wake := make(chan struct{})
	hangs := e.Apply(func(_ context.Context, effect func(string) error) error {
		_ = effect("early") // it fails where the limit was over before it
		<-wake
		return effect("late")
	})
	r := e.record("a")
	v, err := hangs.Accept(e.ctx, &r, new(ichido.Event), time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ichido.ErrUnavailable) || v == ichido.Accepted {
		t.Errorf("accept: %v, %v, want the end of the handler's context", v, err)
	}
	err = hangs.Complete(e.ctx, claimed, new(ichido.Event), time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ichido.ErrUnavailable) {
		t.Errorf("complete: %v, want the end of the handler's context", err)
	}
	e.same("the claimed event", before, e.get(*claimed))
	e.applied(ichido.Accepted, r, once("a")) // while both still hang
	close(wake)
	e.done(claimed)
	e.same("effects", []string{"a"}, e.effects())
}

func applyBegun(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("b")
	claimed := e.claim1()
	type name struct{}
	during := func(call func(context.Context, ichido.Applier) error) error {
		ctx, cancel := context.WithCancel(context.WithValue(e.ctx, name{}, "value"))
		defer cancel()
		return call(ctx, e.Apply(func(mine context.Context, effect func(string) error) error {
			cancel()
			if _, ok := mine.Deadline(); !ok || mine.Err() != nil || mine.Value(name{}) != "value" {
				t.Errorf("the handler's context has deadline %v, error %v and value %v", ok, mine.Err(), mine.Value(name{}))
			}
			return effect("x")
		}))
	}
	err := during(func(ctx context.Context, a ichido.Applier) error {
		r := e.record("a")
		_, err := a.Accept(ctx, &r, new(ichido.Event), limit)
		return err
	})
	if err != nil {
		t.Errorf("accept: %v", err)
	}
	err = during(func(ctx context.Context, a ichido.Applier) error {
		return a.Complete(ctx, claimed, new(ichido.Event), limit)
	})
	if err != nil {
		t.Errorf("complete: %v", err)
	}
	e.same("effects", []string{"x", "x"}, e.effects())
}

func applyWait(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("b")
	claimed := e.claim1()
	before := e.get(*claimed)
	waiting := make(chan struct{})
	holding, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r := e.record("first")
		v, err := e.Apply(func(context.Context, func(string) error) error {
			close(holding)
			<-release
			return nil
		}).Accept(e.ctx, &r, new(ichido.Event), limit)
		if err != nil || v != ichido.Accepted {
			t.Errorf("the first one: %v, %v", v, err)
		}
	})
	<-holding
	ctx, cancel := context.WithCancel(e.ctx)
	never := e.Apply(func(context.Context, func(string) error) error {
		t.Error("a handler ran whose wait had ended")
		return nil
	})
	ended := func(what string, err error) {
		if !errors.Is(err, ichido.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want ErrUnavailable and the context's error", what, err)
		}
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		r := e.record("a")
		waiting <- struct{}{}
		_, err := never.Accept(ctx, &r, new(ichido.Event), limit)
		ended("accept", err)
	})
	waits.Go(func() {
		waiting <- struct{}{}
		ended("complete", never.Complete(ctx, claimed, new(ichido.Event), limit))
	})
	<-waiting
	<-waiting
	cancel()
	waits.Wait() // while the first one still has the writer
	close(release)
	wg.Wait()
	e.same("the claimed event", before, e.get(*claimed))
	e.same("events", []string{"b", "first"}, keys(e.all()))
	e.done(claimed)
}

func applyErrors(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	base := errors.New("refused")
	for _, want := range []error{ichido.Permanent(base), ichido.RetryAfter(base, time.Minute)} {
		r := e.record("a")
		_, err := e.Apply(func(context.Context, func(string) error) error { return want }).Accept(e.ctx, &r, new(ichido.Event), limit)
		if err != want {
			t.Errorf("accept gave %#v, want %#v", err, want)
		}
		e.accept("b")
		c := e.claim1()
		err = e.Apply(func(context.Context, func(string) error) error { return want }).Complete(e.ctx, c, new(ichido.Event), limit)
		if err != want {
			t.Errorf("complete gave %#v, want %#v", err, want)
		}
		e.done(c)
		e.clock.Advance(time.Second)
		e.purge("github", e.clock.Now(), e.clock.Now())
	}
}

func applyComplete(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	failed := errors.New("failed")
	err := e.Apply(func(_ context.Context, effect func(string) error) error {
		return errors.Join(effect("a"), failed)
	}).Complete(e.ctx, r, new(ichido.Event), limit)
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	e.same("effects", []string{}, e.effects())
	e.same("still claimed", []any{ichido.Claimed, r.Token}, []any{e.get(*r).State, e.get(*r).Token})

	r.Confirmed = []byte(`{"done":true}`)
	if err := e.Apply(once("a")).Complete(e.ctx, r, new(ichido.Event), limit); err != nil {
		t.Fatal(err)
	}
	got := e.get(*r)
	e.same("event", []any{ichido.Done, ichido.Applied, uint64(0), 1, e.clock.Now(), `{"done":true}`},
		[]any{got.State, got.Outcome, got.Token, got.Attempts, got.SettledAt, string(got.Confirmed)})
	e.same("effects", []string{"a"}, e.effects())
}

func applyStale(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	old := e.claim1()
	e.clock.Advance(lease)
	current := e.claim1()
	never := func(context.Context, func(string) error) error {
		t.Error("the handler ran")
		return nil
	}
	zero := *current
	zero.Token = 0
	for _, r := range []*ichido.Record{old, &zero} {
		if err := e.Apply(never).Complete(e.ctx, r, new(ichido.Event), limit); !errors.Is(err, ichido.ErrLeaseLost) {
			t.Errorf("got %v, want ErrLeaseLost", err)
		}
	}
	if err := e.Apply(once("a")).Complete(e.ctx, current, new(ichido.Event), limit); err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(never).Complete(e.ctx, current, new(ichido.Event), limit); !errors.Is(err, ichido.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
	e.same("effects", []string{"a"}, e.effects())
}

func applyBeside(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	var wg sync.WaitGroup
	for _, key := range numbered("k", 20) {
		for range 3 {
			wg.Go(func() {
				r := e.record(key)
				if _, err := e.Apply(once(key)).Accept(e.ctx, &r, new(ichido.Event), limit); err != nil {
					t.Errorf("accept: %v", err)
				}
			})
		}
		wg.Go(func() {
			if _, err := e.Queue.Put(e.ctx, []ichido.Record{e.record("put " + key)}); err != nil {
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	e.same("effects", 20, len(e.effects()))
	e.same("counts", map[ichido.State]int{ichido.Done: 20, ichido.Pending: 20}, e.stats().Counts["github"])
}
