package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/memory"
)

func testFailureLeavesNeither(t *testing.T) {
	faults := map[string]func() error{
		"error": func() error { return errors.New("fault") },
		"panic": func() error { panic("fault") },
	}
	eachStore(t, func(t *testing.T, s *testStore) {
		l := newLedger(t, s)
		want := int64(0)
		for name, fault := range faults {
			body := paid(name, 500)
			for range 3 {
				l.fault = fault
				l.send(t, body).is(t, http.StatusServiceUnavailable, ichido.CodeFailed)
				l.holds(t, want, int(want/500))
			}
			l.fault = func() error { return nil }
			l.send(t, body).says(t, first) // not a duplicate: nothing was left
			want += 500
			l.holds(t, want, int(want/500))
			l.send(t, body).says(t, again)
		}
		if n := len(s.list(t, "payments")); n != len(faults) {
			t.Errorf("%d rows are left, want %d", n, len(faults))
		}
	})
	t.Run("after the effect", func(t *testing.T) {
		s := openSQLite(t, t.TempDir()+"/ledger.db")
		l := newLedger(t, s)
		for what, end := range map[string]func(ctx context.Context) error{
			"an error": func(context.Context) error { return errors.New("fault") },
			"a panic":  func(context.Context) error { panic("fault") },
			"its time": func(ctx context.Context) error { <-ctx.Done(); return nil },
		} {
			src := newSource(t, "hmac", provider.Config{Name: "payments", Secrets: secrets(ledgerSecret), Fingerprint: []string{"id", "amount"}})
			src.InRequest, src.HandlerTimeout = true, 50*time.Millisecond
			src.Apply = s.tx(func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
				if _, err := tx.ExecContext(ctx, "UPDATE total SET amount = amount + 500 WHERE id = 1"); err != nil {
					return err
				}
				return end(ctx)
			})
			body := paid("evt_1", 500)
			a := post(t, serve(t, newInbox(t, s, src)), stamped(time.Now(), body), body)
			if a.status != http.StatusServiceUnavailable {
				t.Errorf("%s is answered %d %s", what, a.status, a.body)
			}
			l.holds(t, 0, 0)
		}
		l.send(t, paid("evt_1", 500)).says(t, first)
		l.holds(t, 500, 1)
	})
}

func testTotalOverAnotherConnection(t *testing.T) {
	path := t.TempDir() + "/ledger.db"
	t.Run("while the receiver runs", func(t *testing.T) {
		l := newLedger(t, openSQLite(t, path))
		for n := range 5 {
			l.send(t, paid(fmt.Sprint("evt_", n), 100)).says(t, first)
			l.send(t, paid(fmt.Sprint("evt_", n), 100)).says(t, again)
			// A handler that ran is not what counts; what is in the database is.
			if got := l.total(t); got != int64(100*(n+1)) {
				t.Errorf("another connection reads %d, want %d", got, 100*(n+1))
			}
		}
		// What is not committed is not there for others.
		seen := make(chan int64, 1)
		l.fault = func() error { seen <- l.total(t); return errors.New("fault") }
		l.send(t, paid("evt_5", 100)).is(t, http.StatusServiceUnavailable, ichido.CodeFailed)
		if got := await(t, seen, "the total"); got != 500 {
			t.Errorf("inside the transaction of another, %d is read, want 500", got)
		}
	})
	var total int
	if err := openDB(t, path).QueryRow("SELECT amount FROM total WHERE id = 1").Scan(&total); err != nil || total != 500 {
		t.Errorf("after the end the total is %d, %v; want 500", total, err)
	}
}

func testWebhookAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		l := newLedger(t, s)
		good := paid("evt_1", 500)
		now := time.Now()
		with := func(h http.Header, name, value string) http.Header {
			h = h.Clone()
			h.Set(name, value)
			return h
		}
		// 401 comes first, whatever the body is.
		for _, body := range []string{good, "no JSON", `{"id":"evt_1","id":"evt_2"}`, `{"id":"","amount":0}`, ""} {
			right := stamped(now, body)
			for what, h := range map[string]http.Header{
				"no headers":            {},
				"no timestamp":          {"X-Signature": right["X-Signature"]},
				"no signature":          {"X-Timestamp": right["X-Timestamp"]},
				"a timestamp in words":  with(right, "X-Timestamp", "now"),
				"a wrong signature":     with(right, "X-Signature", strings.Repeat("0", 64)),
				"a stale timestamp":     stamped(now.Add(-302*time.Second), body),
				"a future timestamp":    stamped(now.Add(330*time.Second), body),
				"another one's body":    stamped(now, body+"x"),
				"a signature elsewhere": {"X-Timestamp": right["X-Timestamp"], "X-Hub-Signature-256": {"sha256=" + right.Get("X-Signature")}},
			} {
				if a := post(t, l.url, h, body); a.status != http.StatusUnauthorized || a.code != ichido.CodeSignature {
					t.Errorf("%s with body %q is answered %d %s", what, body, a.status, a.body)
				}
			}
		}
		// Then 400 for what is no JSON, and 409 for what is no event.
		for _, body := range []string{
			"", "no JSON", `{"id":"evt_1","amount":500`, `{"id":"evt_1","amount":500}}`, `{'id':'evt_1'}`, "\xff", `{"id":"evt_1","amount":1,"amount":500}`,
			`{"id":"evt_1","amount":0500}`, `{"id":"evt_1","amount":NaN}`,
		} {
			if a := l.send(t, body); a.status != http.StatusBadRequest || a.code != ichido.CodeUnreadable {
				t.Errorf("%q is answered %d %s", body, a.status, a.body)
			}
		}
		for _, body := range []string{`{"id":"","amount":500}`, `{"amount":500}`, `{"id":"evt_1","amount":0}`, `{"id":"evt_1","amount":true}`, `[]`} {
			if a := l.send(t, body); a.status != http.StatusConflict || a.code != ichido.CodeRejected {
				t.Errorf("%s is answered %d %s", body, a.status, a.body)
			}
		}
		l.holds(t, 0, 0)

		// Then 200, with exactly two members.
		for _, want := range []string{first, again, again} {
			a := l.send(t, good)
			a.says(t, want)
			if a.header.Get("Content-Type") != "application/json" {
				t.Errorf("the answer is %s", a.header.Get("Content-Type"))
			}
		}
		l.send(t, paid("evt_1", 501)).is(t, http.StatusConflict, ichido.CodeConflict)
		l.holds(t, 500, 1)

		// Only POST.
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			r := delivery("/webhook", stamped(now, good), good)
			r.Method = method
			a := direct(l.inbox, r)
			a.is(t, http.StatusMethodNotAllowed, ichido.CodeMethod)
			if a.header.Get("Allow") != http.MethodPost {
				t.Errorf("%s: Allow is %q", method, a.header.Get("Allow"))
			}
		}
	})
}

func testStatedLimits(t *testing.T) {
	t.Run("documented", func(t *testing.T) {
		documents(t, providerPage(t, "hmac"), "A teaching protocol, and a good start for senders of your own; for anything public prefer Standard Webhooks",
			"Read: this project's own protocol for senders without one")
	})
	// The clock is the receiver's own, and the sender cannot stretch the
	// window: a time ahead of it is refused as one behind is.
	t.Run("clock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := newSource(t, "hmac", provider.Config{Secrets: secrets(ledgerSecret)})
			src.Handler = accept
			in := newInbox(t, openMemory(), src)
			body := paid("evt_1", 1)
			ahead := stamped(time.Now().Add(time.Hour), body)
			direct(in, delivery("/webhook", ahead, body)).is(t, http.StatusUnauthorized, ichido.CodeSignature)
			time.Sleep(55 * time.Minute)
			direct(in, delivery("/webhook", ahead, body)).is(t, http.StatusOK, "")
		})
	})
	t.Run("keys are rotated", testKeyRotation)
	t.Run("body size", func(t *testing.T) {
		l := newLedger(t, openMemory())
		large := padded("evt_1", 1<<20+1)
		l.send(t, large).is(t, http.StatusRequestEntityTooLarge, ichido.CodeTooLarge)
		l.send(t, large[:1<<20]).is(t, http.StatusBadRequest, ichido.CodeUnreadable)
	})
	// What is kept is kept for as long as the operator says, and no longer.
	t.Run("retention", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			l := newLedger(t, s)
			l.send(t, paid("evt_1", 500)).says(t, first)
			later := s.clock.now().Add(time.Hour)
			if bodies, keys, err := s.Purge(t.Context(), "payments", later, time.Time{}); bodies != 1 || keys != 0 || err != nil {
				t.Fatalf("purge: %d bodies, %d keys, %v", bodies, keys, err)
			}
			l.send(t, paid("evt_1", 500)).says(t, again)
			l.send(t, paid("evt_1", 501)).is(t, http.StatusConflict, ichido.CodeConflict)
			if _, keys, err := s.Purge(t.Context(), "payments", later, later); keys != 1 || err != nil {
				t.Fatalf("purge: %d keys, %v", keys, err)
			}
			for _, r := range s.list(t, "payments") {
				if r.State != ichido.Quarantined { // the conflict is for people to look at
					t.Errorf("a purged payment is still %s", r.State)
				}
			}
		})
	})
}

// testKeyRotation lets two secrets overlap, and then retires the old one.
func testKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const next = "the-next-ledger-secret-9Yf4"
		start := time.Now()
		src := newSource(t, "hmac", provider.Config{Secrets: []provider.Secret{
			{Value: ledgerSecret, NotAfter: start.Add(2 * time.Hour)},
			{Value: next, NotBefore: start.Add(time.Hour)},
		}})
		src.Handler = accept
		s := memory.New(memory.Options{})
		in := newInbox(t, s, src)
		for hour, accepted := range []map[string]bool{
			{ledgerSecret: true, next: false},
			{ledgerSecret: true, next: true},
			{ledgerSecret: true, next: true},
			{ledgerSecret: false, next: true},
		} {
			for secret, ok := range accepted {
				want := http.StatusUnauthorized
				if ok {
					want = http.StatusOK
				}
				body := paid(fmt.Sprintf("evt_%d_%d", hour, len(secret)), 1)
				h := signed(t, "hmac", provider.SignConfig{Secret: secret}, body)
				if a := direct(in, delivery("/webhook", h, body)); a.status != want {
					t.Errorf("hour %d, secret %s: answered %d, want %d", hour, secret, a.status, want)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}
