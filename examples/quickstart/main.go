// Quickstart is the program of the README: Stripe events, stored in SQLite
// before they are acknowledged, printed once.
//
//	export STRIPE_WEBHOOK_SECRET=whsec_...
//	go run ./examples/quickstart
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err == nil {
		err = serve(ctx, listener, "quickstart.db")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// serve receives and handles events until ctx ends or the listener fails.
func serve(ctx context.Context, listener net.Listener, file string) error {
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()

	serving, stop := context.WithCancelCause(ctx)
	mux := http.NewServeMux()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	err = receive(serving, store, mux, func() { stop(server.Serve(listener)) })
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	if ctx.Err() == nil { // nobody asked for the end
		err = errors.Join(err, context.Cause(serving))
	}
	return err
}

// receive mounts the inbox, has it served, and works what it stores until ctx
// ends.
func receive(ctx context.Context, store *sqlite.Store, mux *http.ServeMux, serve func()) error {
	// region: quickstart
	src, err := provider.New("stripe", provider.Config{Secrets: []provider.Secret{{Value: os.Getenv("STRIPE_WEBHOOK_SECRET")}}})
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
	go serve()                                     // your http.Server, with mux
	return ichido.NewWorker(store, inbox).Run(ctx) // handles what is stored, until ctx ends
	// endregion
}
