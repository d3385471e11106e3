package ichido_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// never is a wait of which even a random part is longer than a test.
const never = 10_000 * time.Hour

func TestLongHandlerKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		b := newBench(t, ichido.Source{HandlerTimeout: time.Hour, Handler: func(ctx context.Context, _ *ichido.Event) error {
			runs++
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}})
		id := b.receive(goodBody)
		b.run(30 * time.Minute)
		if runs != 1 {
			t.Errorf("handler ran %d times", runs)
		}
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
	})
}

func TestHandlerLosesItsContextWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		b := newBench(t, ichido.Source{HandlerTimeout: time.Hour, Backoff: []time.Duration{never}, Handler: func(ctx context.Context, _ *ichido.Event) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}})
		b.receive(goodBody)
		stolen := forgetful{b.store}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := ichido.NewWorker(stolen, b.in)
		w.Log = quiet
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(cause, ichido.ErrLeaseLost) {
			t.Errorf("cause of the handler's context is %v", cause)
		}
	})
}

// forgetful says that every lease is lost.
type forgetful struct{ *memory.Store }

func (f forgetful) Extend(_ context.Context, records []*ichido.Record, _ time.Duration) ([]error, error) {
	errs := make([]error, len(records))
	for i := range errs {
		errs[i] = ichido.ErrLeaseLost
	}
	return errs, nil
}

// A store that cannot renew may give the event to somebody else once the lease
// has ended: the handler must know before.
func TestHandlerLosesItsContextBeforeALeaseEndsThatCannotBeRenewed(t *testing.T) {
	for _, extend := range []func(context.Context) error{
		func(context.Context) error { return ichido.ErrUnavailable },
		func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			var began time.Time
			var ran time.Duration
			var cause error
			b := newBench(t, ichido.Source{HandlerTimeout: time.Hour, Backoff: []time.Duration{never}, Handler: func(ctx context.Context, _ *ichido.Event) error {
				began = time.Now()
				<-ctx.Done()
				ran, cause = time.Since(began), context.Cause(ctx)
				return cause
			}})
			id := b.receive(goodBody)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w := ichido.NewWorker(unrenewable{b.store, extend}, b.in)
			w.Log, w.Lease = quiet, 30*time.Second
			if err := w.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(cause, ichido.ErrLeaseLost) || ran > w.Lease {
				t.Errorf("context ended after %s of a lease of %s, cause %v", ran, w.Lease, cause)
			}
			b.expect(id, ichido.Pending, "", "lease lost", 0)
		})
	}
}

// A job that waits for a slot when its lease is lost is not started any more.
func TestAWaitingJobIsNotStartedAfterItsLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		store := memory.New(memory.Options{})
		block := make(chan struct{})
		in := newInbox(t, store, ichido.Source{Concurrency: 1, HandlerTimeout: time.Hour, Handler: func(context.Context, *ichido.Event) error {
			ran.Add(1)
			<-block
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := ichido.NewWorker(forgetful{store}, in)
		w.Log = quiet
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		for i := range 2 { // the first runs, the second is claimed beside it and waits
			if a := do(in, signed(fmt.Sprintf(`{"id":"e%d","type":"paid"}`, i))); a.Code != 200 {
				t.Fatalf("delivery answered %d", a.Code)
			}
		}
		time.Sleep(20 * time.Second) // past the first renewal
		if n := ran.Load(); n != 1 {
			t.Fatalf("%d ran, want one", n)
		}
		close(block)
		time.Sleep(time.Second)
		if n := ran.Load(); n != 1 {
			t.Errorf("%d ran: the second one's lease was lost while it waited", n)
		}
		time.Sleep(20 * time.Second) // past the end of its lease
		if n := ran.Load(); n != 2 {
			t.Errorf("%d ran: a lapsed claim is due again", n)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// unrenewable cannot extend a lease.
type unrenewable struct {
	*memory.Store
	extend func(context.Context) error
}

func (u unrenewable) Extend(ctx context.Context, _ []*ichido.Record, _ time.Duration) ([]error, error) {
	return nil, u.extend(ctx)
}
