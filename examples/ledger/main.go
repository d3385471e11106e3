// Ledger adds payments to a total, each one once: the signature says who sent
// a payment, not that it is the first time.
//
// It receives POST /webhook with X-Timestamp and X-Signature. The row that
// remembers an event and the change of the total are one transaction of one
// database, so a crash between them leaves neither, and a copy of a payment
// changes nothing.
//
//	export LEDGER_SECRET=$(openssl rand -hex 16)
//	go run ./examples/ledger
//	go run ./cmd/ichido send hmac --secret env:LEDGER_SECRET --to http://127.0.0.1:8080/webhook
//	curl http://127.0.0.1:8080/total
//
// It is an example, not a payment provider's protocol.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the database driver

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("LEDGER_SECRET"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, secret string, out io.Writer) error {
	flags := flag.NewFlagSet("ledger", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address to listen on")
	path := flags.String("db", "ledger.db", "database file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+*path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()

	handler, err := newHandler(ctx, db, store, secret)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx)) // finishes what is in flight
	}
}

// store is what the ledger needs of a database: SQLite here, and any other
// store that hands its transaction to the handler.
type store interface {
	ichido.Queue
	Tx(func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error) ichido.Applier
}

// newHandler makes the table of the total and the receiver.
func newHandler(ctx context.Context, db *sql.DB, s store, secret string) (http.Handler, error) {
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("make the total: %w", err)
	}
	payments, err := provider.New("hmac", provider.Config{
		Name:    "payments",
		Secrets: []provider.Secret{{Value: secret}},
		// A copy is the same id with the same amount, however it is written; the
		// same id with another amount is a conflict.
		Fingerprint: []string{"id", "amount"},
	})
	if err != nil {
		return nil, err
	}
	payments.Apply, payments.InRequest = s.Tx(pay), true
	inbox, err := ichido.NewInbox(s, payments)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/webhook", inbox)
	mux.HandleFunc("GET /total", func(w http.ResponseWriter, r *http.Request) {
		var total int64
		if err := db.QueryRowContext(r.Context(), "SELECT amount FROM total WHERE id = 1").Scan(&total); err != nil {
			http.Error(w, "the total cannot be read", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, total)
	})
	return mux, nil
}

// schema may be run any number of times. The check refuses a sum so large that
// SQLite would turn it into a floating-point number.
const schema = `
	CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL CHECK (amount BETWEEN 0 AND 9007199254740992));
	INSERT INTO total (id, amount) VALUES (1, 0) ON CONFLICT (id) DO NOTHING`

// pay is the effect. It runs in the transaction that stores the event: when it
// returns an error, neither is there.
func pay(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
	var payment struct {
		ID     string `json:"id"`
		Amount int64  `json:"amount"`
	}
	if err := json.Unmarshal(e.Payload(), &payment); err != nil || payment.ID == "" || payment.Amount <= 0 {
		// No attempt can succeed: answered 409. Any other error is answered 503,
		// and the sender tries again.
		return ichido.Permanent(errors.New("a payment has an id and a positive whole amount"))
	}
	_, err := tx.ExecContext(ctx, "UPDATE total SET amount = amount + $1 WHERE id = 1", payment.Amount)
	return err
}
