// Nethttp adds a webhook to a service that has a mux already. With a store and
// a source, what it takes is three lines: an inbox, its route, and a worker.
//
//	export GITHUB_WEBHOOK_SECRET=$(openssl rand -hex 16)
//	go run ./examples/nethttp
//	go run ./cmd/ichido send github --secret env:GITHUB_WEBHOOK_SECRET --to http://127.0.0.1:8080/webhooks/github
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
	if err := run(ctx, os.Args[1:], os.Getenv("GITHUB_WEBHOOK_SECRET"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nethttp:", err)
		os.Exit(1)
	}
}

// run serves and works until ctx ends.
func run(ctx context.Context, args []string, secret string, out io.Writer) error {
	flags := flag.NewFlagSet("nethttp", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address to listen on")
	path := flags.String("db", "nethttp.db", "database file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+*path)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Options{})
	if err != nil {
		return err
	}
	defer store.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "the service that was here before")
	})

	pulls, err := provider.New("github", provider.Config{
		Secrets:       []provider.Secret{{Value: secret}},
		AllowedEvents: []string{"pull_request"},
	})
	if err != nil {
		return err
	}
	pulls.Handler = func(_ context.Context, e *ichido.Event) error { return greet(e, out) }

	inbox, err := ichido.NewInbox(store, pulls) // verifies, stores, and then acknowledges
	if err != nil {
		return err
	}
	mux.Handle("/webhooks/github", inbox)
	worker := ichido.NewWorker(store, inbox) // handles what is stored

	return serve(ctx, *listen, mux, worker, out)
}

// greet handles one event, after it was acknowledged.
func greet(e *ichido.Event, out io.Writer) error {
	var pull struct {
		Action     string `json:"action"`
		Number     int    `json:"number"`
		Repository struct {
			FullName string `json:"full_name"`
		} `json:"repository"`
	}
	if err := json.Unmarshal(e.Payload(), &pull); err != nil {
		return ichido.Permanent(fmt.Errorf("read the pull request: %w", err))
	}
	_, err := fmt.Fprintf(out, "pull request %d of %q: %q\n", pull.Number, pull.Repository.FullName, pull.Action)
	return err
}

// serve is what a service has anyway, and the worker beside it.
func serve(ctx context.Context, address string, handler http.Handler, worker *ichido.Worker, out io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { defer stop(); served <- server.Serve(listener) }()
	err = worker.Run(ctx) // until ctx ends, or serving fails; what is running is finished
	err = errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)))
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}
