// Ledgertarget is a receiver that uses the library: its effect, an addition to
// a total, is made in the transaction that stores or completes the event. The
// crash tests kill it. It has nothing that keeps an effect from being made
// twice but that transaction.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	_ "modernc.org/sqlite" // registers "sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/faultdriver"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/sqlite"
)

func main() {
	db := flag.String("db", "", "database file")
	listen := flag.String("listen", "", "address")
	now := flag.String("now", "", "secret of /now, applied during the request")
	later := flag.String("later", "", "secret of /later, applied by the worker")
	flag.Parse()
	if err := run(*db, *listen, *now, *later); err != nil {
		fmt.Fprintln(os.Stderr, "ledgertarget:", err)
		os.Exit(1)
	}
}

func run(path, listen, now, later string) error {
	ctx := context.Background()
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, total INTEGER NOT NULL);
		CREATE TABLE IF NOT EXISTS applied (id BLOB NOT NULL, amount INTEGER NOT NULL);
		INSERT INTO ledger (id, total) VALUES (1, 0) ON CONFLICT DO NOTHING`); err != nil {
		return fmt.Errorf("make the ledger: %w", err)
	}
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	var inboxes []*ichido.Inbox
	mux := http.NewServeMux()
	for name, secret := range map[string]string{"now": now, "later": later} {
		src, err := provider.New("hmac", provider.Config{Name: name, Secrets: []provider.Secret{{Value: secret}}})
		if err != nil {
			return err
		}
		src.Apply, src.InRequest = store.Tx(apply), name == "now"
		in, err := ichido.NewInbox(store, src)
		if err != nil {
			return err
		}
		inboxes = append(inboxes, in)
		mux.Handle("/"+name, in)
	}
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	worker := ichido.NewWorker(store, inboxes...)
	worker.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ended := make(chan error, 2)
	go func() { ended <- worker.Run(ctx) }()
	go func() { ended <- http.ListenAndServe(listen, mux) }()
	select {
	case err = <-ended:
	case <-store.Failed():
		err = store.Err()
	}
	return errors.Join(errors.New("stopped"), err)
}

// open opens the database, with the faults that the environment names.
func open(path string) (*sql.DB, error) {
	plan, err := faultdriver.Parse(os.Getenv(faultdriver.Variable))
	if err != nil {
		return nil, err
	}
	plain, err := sql.Open("sqlite", "")
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	sql.Register("sqlite-fault", faultdriver.New(plain.Driver(), plan))
	return sql.Open("sqlite-fault", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
}

// apply adds an event's amount to the total.
func apply(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
	var payment struct {
		Amount int64 `json:"amount"`
	}
	if err := json.Unmarshal(e.Payload(), &payment); err != nil {
		return ichido.Permanent(err)
	}
	hash, ok := ichido.ParseID(e.ID())
	if !ok {
		return ichido.Permanent(errors.New("the event's id is none"))
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO applied (id, amount) VALUES (?, ?)`, hash[:], payment.Amount); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE ledger SET total = total + ?`, payment.Amount)
	return err
}
