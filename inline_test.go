package ichido_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// inlineSource runs handler during the request, with claims of its own.
func inlineSource(handler func(context.Context, http.ResponseWriter, *ichido.Event) error) ichido.Source {
	return ichido.Source{Inline: handler, Claims: memory.New(memory.Options{}).Claims()}
}

func TestAReplayedInlineEventIsHandledByTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		src := inlineSource(func(_ context.Context, w http.ResponseWriter, _ *ichido.Event) error {
			if runs++; runs == 2 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return nil
		})
		src.Keep = true
		b := newBench(t, src)
		id := b.receive(goodBody)
		if n, err := b.store.Replay(t.Context(), ichido.Filter{ID: id}, false); n != 1 || err != nil {
			t.Fatalf("replay: %d, %v", n, err)
		}
		b.run(1)
		b.expect(id, ichido.Pending, "", "the handler answered 502", 1)
		b.run(24 * time.Hour)
		b.expect(id, ichido.Done, ichido.Applied, "", 2)
		if runs != 3 {
			t.Errorf("the handler ran %d times, want in the request and twice in the worker", runs)
		}
	})
}

func TestAReplayedInRequestEventIsAppliedByTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		store := memory.New(memory.Options{})
		b := &bench{t, store, newInbox(t, store, ichido.Source{InRequest: true, Apply: store.Apply(func(context.Context, *ichido.Event) error {
			runs++
			return nil
		})})}
		id := b.receive(goodBody)
		if n, err := store.Replay(t.Context(), ichido.Filter{ID: id}, false); n != 1 || err != nil {
			t.Fatalf("replay: %d, %v", n, err)
		}
		b.run(1)
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
		if runs != 2 {
			t.Errorf("applied %d times, want in the request and in the worker", runs)
		}
	})
}

func TestAnInlineConflictIsRefusedWhereAQueueCanTell(t *testing.T) {
	other := `{"id":"e1","type":"paid","amount":2}`
	handler := func(_ context.Context, w http.ResponseWriter, _ *ichido.Event) error { return nil }
	for _, test := range []struct {
		name  string
		queue ichido.Queue
		body  string
		code  int
	}{
		{"duplicate", memory.New(memory.Options{}), goodBody, 204},
		{"conflict", memory.New(memory.Options{}), other, 409},
		{"conflict without a queue", nil, other, 204},
	} {
		in := newInbox(t, test.queue, inlineSource(handler))
		if w := do(in, signed(goodBody)); w.Code != 200 {
			t.Errorf("%s: first answered %d", test.name, w.Code)
		}
		if w := do(in, signed(test.body)); w.Code != test.code {
			t.Errorf("%s: second answered %d %s, want %d", test.name, w.Code, w.Body, test.code)
		}
	}
}

func TestAnInlineHandlerOutlivesItsSender(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	var seen error
	in := newInbox(t, nil, inlineSource(func(ctx context.Context, _ http.ResponseWriter, _ *ichido.Event) error {
		gone()
		seen = ctx.Err()
		if _, bounded := ctx.Deadline(); !bounded {
			return errors.New("no deadline")
		}
		return nil
	}))
	if w := do(in, signed(goodBody).WithContext(ctx)); w.Code != 200 || seen != nil {
		t.Errorf("answered %d %s, context %v", w.Code, w.Body, seen)
	}
}

// plainProvider is testProvider without the look into bodies.
type plainProvider struct{ inner testProvider }

func (p plainProvider) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	proof, err := p.inner.Verify(d)
	if proof.Unreadable != "" {
		proof.Unreadable, proof.Key = "", "k"
	}
	return proof, err
}

func TestPayloadIsTheBodyWhereThatIsJSONAndNobodyLooksIntoIt(t *testing.T) {
	for body, want := range map[string]string{goodBody: goodBody, "id=1&type=paid": ""} {
		got := "not called"
		src := inlineSource(func(_ context.Context, _ http.ResponseWriter, e *ichido.Event) error {
			got = string(e.Payload())
			return nil
		})
		src.Provider = plainProvider{}
		if w := do(newInbox(t, nil, src), signed(body)); w.Code != 200 || got != want {
			t.Errorf("body %q: answered %d, payload %q, want %q", body, w.Code, got, want)
		}
	}
}

// bodyToken is a provider whose secret is in the body: it has another body
// stored.
type bodyToken struct{ testProvider }

const tokenBody = `{"id":"e1","type":"paid","token":"s3cr3t-of-the-sender"}`

func (p bodyToken) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	proof, err := p.testProvider.Verify(d)
	proof.Stored = bytes.ReplaceAll(d.Body, []byte("s3cr3t-of-the-sender"), []byte("[redacted]"))
	return proof, err
}

func TestAHandlerNeverSeesASecretOfTheBody(t *testing.T) {
	store := memory.New(memory.Options{})
	runs := 0
	see := func(_ context.Context, e *ichido.Event) error {
		runs++
		for _, seen := range []string{string(e.Payload()), string(e.Body())} {
			if !strings.Contains(seen, "[redacted]") || strings.Contains(seen, "s3cr3t") {
				t.Errorf("a handler saw %q", seen)
			}
		}
		return nil
	}
	inline := inlineSource(func(ctx context.Context, _ http.ResponseWriter, e *ichido.Event) error { return see(ctx, e) })
	for _, src := range []ichido.Source{inline, {Apply: store.Apply(see), InRequest: true}} {
		src.Provider = bodyToken{}
		src.Name = fmt.Sprint("source", runs) // so that the second is no copy of the first
		if w := do(newInbox(t, store, src), signed(tokenBody)); w.Code != 200 {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	}
	if runs != 2 {
		t.Errorf("%d handlers ran, want 2", runs)
	}
}

func TestAnInlineHandlerThatEndsItsGoroutineReleasesItsClaim(t *testing.T) {
	runs := 0
	in := newInbox(t, nil, inlineSource(func(context.Context, http.ResponseWriter, *ichido.Event) error {
		if runs++; runs == 1 {
			runtime.Goexit()
		}
		return nil
	}))
	var wg sync.WaitGroup
	wg.Go(func() { do(in, signed(goodBody)) })
	wg.Wait()
	if w := do(in, signed(goodBody)); w.Code != 200 || runs != 2 {
		t.Errorf("the retry was answered %d %s, and the handler ran %d times", w.Code, w.Body, runs)
	}
}

// Waiting for the store's writer is not an attempt.
func TestWaitingForTheWriterSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		busy := &busyApplier{Applier: store.Apply(handled), refusals: 50}
		b := &bench{t, store, newInbox(t, store, ichido.Source{Apply: busy, Attempts: 3})}
		id := b.receive(goodBody)
		b.run(24 * time.Hour)
		b.expect(id, ichido.Done, ichido.Applied, "", 1)
	})
}

// busyApplier does not get a transaction for its first calls.
type busyApplier struct {
	ichido.Applier
	refusals int
}

func (b *busyApplier) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) error {
	if b.refusals--; b.refusals >= 0 {
		return fmt.Errorf("apply: %w", ichido.ErrUnavailable)
	}
	return b.Applier.Complete(ctx, r, e, limit)
}

func TestSplitDeliveriesAreNotHandledInTheRequest(t *testing.T) {
	src := inlineSource(func(context.Context, http.ResponseWriter, *ichido.Event) error { return nil })
	src.Name, src.Provider = "test", splitting{}
	if _, err := ichido.NewInbox(nil, src); err == nil || !strings.Contains(err.Error(), "several events") {
		t.Errorf("accepted: %v", err)
	}
}
