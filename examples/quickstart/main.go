// Quickstart is the program of the README: Stripe events, stored in SQLite
// before they are acknowledged, printed once.
//
//	export STRIPE_WEBHOOK_SECRET=whsec_...
//	go run ./examples/quickstart
package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/signal"

	_ "modernc.org/sqlite" // the database driver

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mux := http.NewServeMux()
	db, err := sql.Open("sqlite", "file:quickstart.db")
	if err == nil {
		defer db.Close()
		err = run(ctx, mux, db)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run serves on port 8080 until ctx ends.
func run(ctx context.Context, mux *http.ServeMux, db *sql.DB) error {
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	// region: quickstart
	src, err := provider.New("stripe", provider.Config{
		Secrets: []provider.Secret{{Value: os.Getenv("STRIPE_WEBHOOK_SECRET")}},
	})
	if err != nil {
		return err
	}
	src.Handler = func(ctx context.Context, e *ichido.Event) error {
		fmt.Println(e.ID(), e.Type(), string(e.Payload()))
		return nil // or an error: it is tried again
	}
	inbox, err := ichido.NewInbox(store, src)
	if err != nil {
		return err
	}
	mux.Handle("/webhooks/stripe", inbox)
	worker := ichido.NewWorker(store, inbox)
	// endregion
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux}
	context.AfterFunc(ctx, func() { server.Close() })
	go server.ListenAndServe()
	return worker.Run(ctx)
}
