package ichido_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/sqlite"
)

const exampleSecret = "made-up-secret-for-examples-6Vr1"

// exampleSource makes a source of a sender that signs with X-Timestamp and
// X-Signature.
func exampleSource() ichido.Source {
	src, err := provider.New("hmac", provider.Config{
		Name: "orders", Secrets: []provider.Secret{{Value: exampleSecret}}, Fingerprint: []string{"id", "amount"},
	})
	if err != nil {
		panic(err)
	}
	src.Log = slog.New(slog.DiscardHandler)
	return src
}

// deliver sends a body as that sender does, and prints the answer.
func deliver(inbox http.Handler, body string) {
	header, err := provider.Sign("hmac", provider.SignConfig{Secret: exampleSecret, Time: time.Now()}, []byte(body))
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/webhooks/orders", strings.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	inbox.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}

// An inbox verifies, stores and acknowledges; a worker handles what is stored.
func Example() {
	store := memory.New(memory.Options{}) // to keep events, use store/sqlite
	ctx, stop := context.WithCancel(context.Background())

	orders := exampleSource() // from provider.New
	orders.Handler = func(ctx context.Context, e *ichido.Event) error {
		defer stop() // one event is enough for an example
		fmt.Printf("handle %s, %s: %s\n", e.Key(), e.Strength(), e.Payload())
		return nil
	}
	inbox, err := ichido.NewInbox(store, orders)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver(inbox, `{"id":"order-1","amount":500}`)
	deliver(inbox, `{"id":"order-1","amount":500}`) // the sender did not hear the answer
	deliver(inbox, `{"id":"order-1","amount":999}`) // not the same order

	if err := ichido.NewWorker(store, inbox).Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 {"accepted":true,"duplicate":false}
	// 200 {"accepted":true,"duplicate":true}
	// 409 {"type":"about:blank","title":"An event with this identity and other content is stored.","status":409,"code":"event_conflict"}
	// handle order-1, verified: {"id":"order-1","amount":500}
}

// An inbox is an http.Handler, and reports every problem of its source
// together.
func ExampleNewInbox() {
	_, err := ichido.NewInbox(memory.New(memory.Options{}), ichido.Source{Name: "no spaces", BodyLimit: -1})
	fmt.Println(err)
	// Output:
	// source "no spaces": name must be 1 to 64 letters, digits, '-', '_' or '.'
	// source "no spaces": provider is missing: make the source with provider.New
	// source "no spaces": nothing is done with its events: set Handler, Inline or Apply, or Keep to only store them
	// source "no spaces": limits and times must not be negative
}

// A permanent error makes a dead letter at once: it can be found, and replayed
// when the handler is corrected.
func ExamplePermanent() {
	store := memory.New(memory.Options{})
	ctx, stop := context.WithCancel(context.Background())
	orders := exampleSource()
	orders.Handler = func(_ context.Context, e *ichido.Event) error {
		defer stop()
		var order struct{ Amount int }
		if err := json.Unmarshal(e.Payload(), &order); err != nil {
			return ichido.Permanent(errors.New("the amount is not a number"))
		}
		return nil
	}
	inbox, err := ichido.NewInbox(store, orders)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver(inbox, `{"id":"order-2","amount":"a lot"}`)

	worker := ichido.NewWorker(store, inbox)
	worker.Log = slog.New(slog.DiscardHandler)
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	dead, err := store.List(context.Background(), ichido.Filter{State: ichido.Dead})
	for _, record := range dead {
		fmt.Println(record.Key, record.State, record.Cause, err)
	}
	// Output:
	// 200 {"accepted":true,"duplicate":false}
	// order-2 dead the amount is not a number <nil>
}

// A handler that knows when to come back says so; other errors wait by the
// source's backoff table.
func ExampleRetryAfter() {
	store := memory.New(memory.Options{})
	ctx, stop := context.WithCancel(context.Background())
	orders := exampleSource()
	orders.Handler = func(context.Context, *ichido.Event) error {
		defer stop()
		return ichido.RetryAfter(errors.New("the warehouse is closed"), 8*time.Hour)
	}
	inbox, err := ichido.NewInbox(store, orders)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver(inbox, `{"id":"order-3","amount":1}`)
	if err := ichido.NewWorker(store, inbox).Run(ctx); err != nil {
		fmt.Println(err)
	}
	pending, err := store.List(context.Background(), ichido.Filter{State: ichido.Pending})
	for _, record := range pending {
		fmt.Println(record.Key, "is due in", time.Until(record.Due).Round(time.Minute), err)
	}
	// Output:
	// 200 {"accepted":true,"duplicate":false}
	// order-3 is due in 8h0m0s <nil>
}

// Inline, the handler runs during the request, and its own response goes
// back. It runs once: a claim comes first.
func ExampleSource_inline() {
	claims := memory.New(memory.Options{}).Claims()
	orders := exampleSource()
	orders.Claims = claims
	orders.Inline = func(_ context.Context, w http.ResponseWriter, e *ichido.Event) error {
		fmt.Println("handle", e.Key())
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprint(w, "thank you")
		return err
	}
	inbox, err := ichido.NewInbox(nil, orders) // no queue: nothing is kept but the claim
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver(inbox, `{"id":"order-4","amount":1}`)
	deliver(inbox, `{"id":"order-4","amount":1}`)
	// Output:
	// handle order-4
	// 201 thank you
	// 204
}

// In transaction, the event and its effect are committed together, here
// during the request: the total is right whatever happens in between.
func ExampleSource_inTransaction() {
	dir, err := os.MkdirTemp("", "ichido")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "orders.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlite.Open(context.Background(), db, sqlite.Options{MinFree: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := db.Exec("CREATE TABLE total (amount INTEGER NOT NULL); INSERT INTO total VALUES (0)"); err != nil {
		fmt.Println(err)
		return
	}

	orders := exampleSource()
	orders.InRequest = true
	orders.Apply = store.Tx(func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
		var order struct{ Amount int }
		if err := json.Unmarshal(e.Payload(), &order); err != nil || order.Amount <= 0 {
			return ichido.Permanent(errors.New("the amount is not positive")) // answered 409
		}
		_, err := tx.ExecContext(ctx, "UPDATE total SET amount = amount + ?", order.Amount)
		return err
	})
	inbox, err := ichido.NewInbox(store, orders)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliver(inbox, `{"id":"order-5","amount":500}`)
	deliver(inbox, `{"id":"order-5","amount":500}`)
	deliver(inbox, `{"id":"order-6","amount":20}`)

	var total int
	err = db.QueryRow("SELECT amount FROM total").Scan(&total)
	fmt.Println("total", total, err)
	// Output:
	// 200 {"accepted":true,"duplicate":false}
	// 200 {"accepted":true,"duplicate":true}
	// 200 {"accepted":true,"duplicate":false}
	// total 520 <nil>
}
