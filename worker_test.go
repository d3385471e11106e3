package ichido_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// bench is a store, an inbox over it, and a worker that a test can start.
type bench struct {
	t     *testing.T
	store *memory.Store
	in    *ichido.Inbox
}

func newBench(t *testing.T, src ichido.Source) *bench {
	store := memory.New(memory.Options{})
	return &bench{t, store, newInbox(t, store, src)}
}

// receive sends a body that must be accepted, and returns the event's id.
func (b *bench) receive(body string) string {
	b.t.Helper()
	if w := do(b.in, signed(body)); w.Code != 200 {
		b.t.Fatalf("delivery answered %d %s", w.Code, w.Body)
	}
	records, err := b.store.List(context.Background(), ichido.Filter{Limit: 1})
	if err != nil || len(records) != 1 {
		b.t.Fatalf("list: %v, %v", records, err)
	}
	return records[0].ID()
}

// run runs a worker for d of the bubble's time.
func (b *bench) run(d time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	w := ichido.NewWorker(b.store, b.in)
	w.Log = quiet
	if err := w.Run(ctx); err != nil {
		b.t.Fatalf("run worker: %v", err)
	}
}

func (b *bench) get(id string) ichido.Record {
	b.t.Helper()
	rec, err := b.store.Get(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return rec
}

func (b *bench) expect(id string, state ichido.State, outcome, cause string, attempts int) {
	b.t.Helper()
	rec := b.get(id)
	if rec.State != state || rec.Outcome != outcome || !strings.Contains(rec.Cause, cause) || rec.Attempts != attempts {
		b.t.Errorf("event is %s %q, cause %q, %d attempts; want %s %q, a cause with %q, %d attempts",
			rec.State, rec.Outcome, rec.Cause, rec.Attempts, state, outcome, cause, attempts)
	}
}

func TestEventIsAppliedOnceWithWhatWasProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		b := newBench(t, ichido.Source{Handler: func(_ context.Context, e *ichido.Event) error {
			got = append(got, fmt.Sprint(e.Source(), e.Key(), e.Type(), e.TypeSigned(), e.Strength(), e.Attempt(), string(e.Body()), string(e.Payload())))
			return nil
		}})
		id := b.receive(goodBody)
		b.receive(goodBody)
		b.run(time.Minute)
		want := "test" + "e1" + "paid" + "true verified 1 " + goodBody + " " + goodBody
		if len(got) != 1 || strings.ReplaceAll(got[0], " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("handler got %q, want once %q", got, want)
		}
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
	})
}

func TestFailureIsRetriedByTheTableThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		b := newBench(t, ichido.Source{
			Attempts: 4, Backoff: []time.Duration{time.Minute, time.Hour},
			Handler: func(context.Context, *ichido.Event) error { at = append(at, time.Now()); return errors.New("boom") },
		})
		id := b.receive(goodBody)
		b.run(12 * time.Hour)
		b.expect(id, ichido.Dead, "", "attempts used up: boom", 4)
		if len(at) != 4 {
			t.Fatalf("%d attempts, want 4", len(at))
		}
		for i, bound := range []time.Duration{time.Minute, time.Hour, time.Hour} {
			if wait := at[i+1].Sub(at[i]); wait > bound+2*time.Second {
				t.Errorf("wait after attempt %d was %s, bound %s", i+1, wait, bound)
			}
		}
	})
}

func TestPermanentAndPanicAndRetryAfter(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   func() error
		state ichido.State
		cause string
	}{
		{"permanent", func() error { return ichido.Permanent(errors.New("no such customer")) }, ichido.Dead, "no such customer"},
		{"wrapped permanent", func() error { return fmt.Errorf("apply: %w", ichido.Permanent(errors.New("gone"))) }, ichido.Dead, "gone"},
		{"panic", func() error { panic("nil map") }, ichido.Pending, "panic: nil map"},
		{"text that is not printable", func() error { return errors.New("a\x1b[31m\nb") }, ichido.Pending, "a?[31m?b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, ichido.Source{Backoff: []time.Duration{1000 * time.Hour}, Handler: func(context.Context, *ichido.Event) error { return test.err() }})
				id := b.receive(goodBody)
				b.run(5 * time.Second)
				b.expect(id, test.state, "", test.cause, 1)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		b := newBench(t, ichido.Source{Handler: func(context.Context, *ichido.Event) error {
			at = append(at, time.Now())
			return ichido.RetryAfter(errors.New("busy"), 10*time.Minute)
		}})
		b.receive(goodBody)
		b.run(15 * time.Minute)
		if len(at) != 2 || at[1].Sub(at[0]) < 10*time.Minute || at[1].Sub(at[0]) > 10*time.Minute+2*time.Second {
			t.Errorf("attempts at %v, want two, ten minutes apart", at)
		}
	})
}

func TestDrainGivesTheAttemptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{HandlerTimeout: time.Hour, Handler: func(ctx context.Context, _ *ichido.Event) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		id := b.receive(goodBody)
		b.run(5 * time.Second)
		b.expect(id, ichido.Pending, "", "draining", 0)
		if rec := b.get(id); rec.Deaths != 0 {
			t.Errorf("drain counted %d deaths", rec.Deaths)
		}
	})
}

func TestDrainLetsRunningHandlersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{Handler: func(ctx context.Context, _ *ichido.Event) error {
			select {
			case <-time.After(8 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		id := b.receive(goodBody)
		b.run(time.Second)
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
	})
}

func TestPoisonIsDeadAfterThreeDeathsAndItsNeighboursAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		applied := map[string]int{}
		var mu sync.Mutex
		b := newBench(t, ichido.Source{Concurrency: 8, Handler: func(_ context.Context, e *ichido.Event) error {
			mu.Lock()
			defer mu.Unlock()
			applied[e.Key()]++
			return nil
		}})
		var poison string
		for i := range 8 {
			id := b.receive(fmt.Sprintf(`{"id":"e%d"}`, i))
			if i == 5 {
				poison = id
			}
		}
		// A process that has claimed the poison dies with all it has claimed;
		// the others settle.
		for deaths := 0; deaths < 3; {
			want := ichido.Want{Slots: map[string]int{"test": 8}, Lease: time.Minute, Suspects: map[string]bool{"test": true}}
			records, err := b.store.Claim(t.Context(), want)
			if err != nil || len(records) == 0 {
				t.Fatalf("claimed %d, %v", len(records), err)
			}
			var done []ichido.Settlement
			died := false
			for i := range records {
				if records[i].ID() == poison {
					died = true
					b.store.Mark(&records[i], true) // only its handler runs when the process ends
				}
				done = append(done, ichido.Settlement{Record: &records[i], State: ichido.Done, Outcome: ichido.Applied})
			}
			if died {
				deaths++
				time.Sleep(2 * time.Minute)
				continue
			}
			if _, err := b.store.Settle(t.Context(), done); err != nil {
				t.Fatal(err)
			}
		}
		b.run(time.Hour)
		b.expect(poison, ichido.Dead, "", "poison", 4)
		dead, err := b.store.List(t.Context(), ichido.Filter{State: ichido.Dead})
		if err != nil || len(dead) != 1 {
			t.Errorf("%d dead letters (%v), want only the poison", len(dead), err)
		}
		if applied["e5"] != 0 {
			t.Error("the poison was handled a fourth time")
		}
	})
}

func TestConfirmationDecidesBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, handledWith atomic.Int32
		start := time.Now()
		b := newBench(t, ichido.Source{
			Confirm: func(context.Context, *ichido.Event) ([]byte, error) {
				asked.Add(1)
				if time.Since(start) < time.Hour {
					return nil, ichido.ErrNotYet
				}
				return []byte(`{"done":true}`), nil
			},
			Handler: func(_ context.Context, e *ichido.Event) error {
				if string(e.Confirmed()) == `{"done":true}` {
					handledWith.Add(1)
				}
				return nil
			},
		})
		id := b.receive(goodBody)
		b.run(30 * time.Minute)
		if handledWith.Load() != 0 || asked.Load() == 0 {
			t.Fatalf("before it was true: asked %d times, handled %d times", asked.Load(), handledWith.Load())
		}
		b.expect(id, ichido.Pending, "", "not yet", 0)
		b.run(2 * time.Hour)
		if handledWith.Load() != 1 {
			t.Errorf("handled %d times with the fetched state", handledWith.Load())
		}
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
		if rec := b.get(id); string(rec.Confirmed) != `{"done":true}` {
			t.Errorf("kept state %q", rec.Confirmed)
		}
	})
}

func TestConfirmationThatNeverComesEndsDeadAndRefutedEndsDone(t *testing.T) {
	for _, test := range []struct {
		name           string
		err            error
		state          ichido.State
		outcome, cause string
		attempts       int
	}{
		{"not yet for 72 hours", ichido.ErrNotYet, ichido.Dead, "", "unconfirmed", 1},
		{"refuted", fmt.Errorf("the API says FAILED: %w", ichido.ErrRefuted), ichido.Done, ichido.Refuted, "FAILED", 1},
		{"the API is down", errors.New("503"), ichido.Dead, "", "attempts used up: 503", 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran := false
				b := newBench(t, ichido.Source{
					Confirm: func(context.Context, *ichido.Event) ([]byte, error) { return nil, test.err },
					Handler: func(context.Context, *ichido.Event) error { ran = true; return nil },
				})
				id := b.receive(goodBody)
				b.run(100 * time.Hour)
				b.expect(id, test.state, test.outcome, test.cause, test.attempts)
				if ran {
					t.Error("the handler ran")
				}
			})
		})
	}
}

func TestUnfitBodiesNeverReachTheHandler(t *testing.T) {
	for _, test := range []struct {
		body  string
		state ichido.State
		cause string
	}{
		{`{"id":"e1","type":"delete"}`, ichido.Dead, "event_not_allowed: ref_type is missing"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ran := false
			b := newBench(t, ichido.Source{AcceptUnreadable: true, Handler: func(context.Context, *ichido.Event) error { ran = true; return nil }})
			id := b.receive(test.body)
			b.run(5 * time.Second)
			b.expect(id, test.state, "", test.cause, 1)
			if ran {
				t.Error("the handler ran")
			}
		})
	}
}

func TestNeverMoreThanConcurrencyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := newBench(t, ichido.Source{Concurrency: 3, Handler: func(context.Context, *ichido.Event) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}})
		for i := range 20 {
			b.receive(fmt.Sprintf(`{"id":"e%d"}`, i))
		}
		b.run(time.Minute)
		if most.Load() != 3 {
			t.Errorf("%d attempts at once, want 3", most.Load())
		}
		if left, _ := b.store.List(t.Context(), ichido.Filter{State: ichido.Pending}); len(left) != 0 {
			t.Errorf("%d events are left", len(left))
		}
	})
}

// counting counts the claims that returned something.
type counting struct {
	*memory.Store
	claimed atomic.Int32
}

func (c *counting) Claim(ctx context.Context, want ichido.Want) ([]ichido.Record, error) {
	records, err := c.Store.Claim(ctx, want)
	c.claimed.Add(int32(len(records)))
	return records, err
}

func TestWhatIsAcceptedBesideAnIdleWorkerIsStartedWithoutAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New(memory.Options{})}
		ran := map[string]int{}
		var mu sync.Mutex
		in := newInbox(t, store, ichido.Source{Concurrency: 1, Handler: func(_ context.Context, e *ichido.Event) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			ran[e.Key()+" "+string(e.Body())+" "+e.Header("X-Sig")[:4]]++
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		w := ichido.NewWorker(store, in)
		w.Log = quiet
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		for _, id := range []string{"a", "b", "c", "e", "f", "g"} { // one runs, four wait for the slot, and g in the store's line
			do(in, signed(`{"id":"`+id+`"}`))
		}
		do(in, signed(`{"id":"a"}`))
		time.Sleep(10 * time.Second)
		do(in, signed(`{"id":"d"}`)) // and nobody waits any more
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if n := store.claimed.Load(); n != 1 {
			t.Errorf("%d events were claimed, want only the one that waited for its turn", n)
		}
		if len(ran) != 7 {
			t.Errorf("handled %v", ran)
		}
		for what, n := range ran {
			if n != 1 {
				t.Errorf("%s was handled %d times", what, n)
			}
		}
		if do(in, signed(`{"id":"last"}`)).Code != 200 {
			t.Error("an event after the worker's end was refused")
		}
		if left, _ := store.List(t.Context(), ichido.Filter{State: ichido.Pending}); len(left) != 1 {
			t.Errorf("%d events wait for a worker, want the last one", len(left))
		}
	})
}

func TestPanicInAProviderIsAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{Provider: panickyInspector{}, AcceptUnreadable: true, Backoff: []time.Duration{1000 * time.Hour}})
		id := b.receive(goodBody)
		b.run(5 * time.Second)
		b.expect(id, ichido.Pending, "", "panic: odd body", 1)
	})
}

type panickyInspector struct{ testProvider }

func (panickyInspector) Inspect(string, []byte) ([]byte, error) { panic("odd body") }

func TestSettleIsTriedAgainWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{})
		id := b.receive(goodBody)
		flaky := &flakySettle{Store: b.store, failures: 3}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w := ichido.NewWorker(flaky, b.in)
		w.Log = quiet
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
		if flaky.failures != 0 {
			t.Errorf("%d failures were not met", flaky.failures)
		}
	})
}

func TestSuspectsFollowEachOtherAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 20
		var last time.Time
		b := newBench(t, ichido.Source{Handler: func(context.Context, *ichido.Event) error { last = time.Now(); return nil }})
		for i := range events {
			b.receive(fmt.Sprintf(`{"id":"e%d"}`, i))
		}
		claimed, err := b.store.Claim(t.Context(), ichido.Want{Slots: map[string]int{"test": events}, Lease: time.Minute})
		if err != nil || len(claimed) != events {
			t.Fatalf("claimed %d, %v", len(claimed), err)
		}
		for i := range claimed {
			b.store.Mark(&claimed[i], true) // all were running when the process ended
		}
		time.Sleep(2 * time.Minute)
		began := time.Now()
		b.run(time.Hour)
		if took := last.Sub(began); last.IsZero() || took > time.Second {
			t.Errorf("%d suspects took %s: each waited for the next look", events, took)
		}
	})
}

func TestAStoreThatCannotSettleDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{})
		b.receive(goodBody)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := ichido.NewWorker(&flakySettle{Store: b.store, failures: 1 << 30}, b.in)
		w.Log, w.Lease = quiet, time.Hour
		began := time.Now()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run returned %s after its start, its context ended after 1s", took)
		}
	})
}

type flakySettle struct {
	*memory.Store
	failures int
}

func (f *flakySettle) Settle(ctx context.Context, s []ichido.Settlement) ([]error, error) {
	if f.failures > 0 {
		f.failures--
		return nil, ichido.ErrUnavailable
	}
	return f.Store.Settle(ctx, s)
}

func TestFailedAttemptsAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ichido.Source{Attempts: 5, Backoff: []time.Duration{time.Minute}, Handler: func(context.Context, *ichido.Event) error {
			return errors.New("boom")
		}})
		for i := range 50 {
			b.receive(fmt.Sprintf(`{"id":"e%d","type":"paid"}`, i))
		}
		var log strings.Builder
		w := ichido.NewWorker(b.store, b.in)
		w.Log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(log.String(), "\n")
		if lines != 1 || !strings.Contains(log.String(), "cause=boom") || !strings.Contains(log.String(), "event=ev_") {
			t.Errorf("%d lines for 50 failed attempts, want one with the event and the cause:\n%s", lines, log.String())
		}
	})
}

func TestAHandlerThatEndsItsGoroutineHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		b := newBench(t, ichido.Source{Concurrency: 1, Attempts: 3, Handler: func(_ context.Context, e *ichido.Event) error {
			if runs++; e.Key() == "e1" {
				runtime.Goexit()
			}
			return nil
		}})
		gone := b.receive(goodBody)
		good := b.receive(`{"id":"e2","type":"paid"}`)
		b.run(24 * time.Hour)
		b.expect(gone, ichido.Dead, "", "Goexit", 3)
		b.expect(good, ichido.Done, ichido.Applied, "", 1)
		if runs != 4 {
			t.Errorf("handlers ran %d times, want 4", runs)
		}
	})
}

// What became due while every slot is taken by newer events must get one.
func TestARetryGetsASlotUnderSteadyLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Bool
		var again atomic.Int64
		began := time.Now()
		store := memory.New(memory.Options{})
		in := newInbox(t, store, ichido.Source{Concurrency: 8, Handler: func(_ context.Context, e *ichido.Event) error {
			if e.Key() == "first" {
				if failed.CompareAndSwap(false, true) {
					return ichido.RetryAfter(errors.New("once"), 2*time.Second) // when every slot is taken
				}
				again.Store(int64(time.Since(began)))
			}
			time.Sleep(80 * time.Millisecond)
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		w := ichido.NewWorker(store, in)
		w.Log = quiet
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		do(in, signed(`{"id":"first","type":"paid"}`))
		for i := 0; ctx.Err() == nil; i++ {
			do(in, signed(fmt.Sprintf(`{"id":"e%d","type":"paid"}`, i)))
			time.Sleep(10 * time.Millisecond)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if wait := time.Duration(again.Load()); wait == 0 || wait > 5*time.Second {
			t.Errorf("the retry ran after %s of steady load", wait)
		}
	})
}
