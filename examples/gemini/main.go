// Gemini keeps the results of Gemini batches. A webhook says that a batch is
// done; the Gemini API says whether it is true, and what came of it.
//
// The webhook is verified (Standard Webhooks HMAC) and stored before it is
// acknowledged. A worker then asks the API for the batch: not done yet means
// later, not true means never, and only what the API answered is kept. So a
// forged or early webhook does nothing.
//
//	export GEMINI_WEBHOOK_SECRET=whsec_...   # shown once, when the webhook is registered
//	export GEMINI_API_KEY=...
//	go run ./examples/gemini
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
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the database driver

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gemini:", err)
		os.Exit(1)
	}
}

// run receives and works until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	flags := flag.NewFlagSet("gemini", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address to listen on")
	path := flags.String("db", "gemini.db", "database file")
	results := flags.String("results", "results", "folder for the results")
	api := flags.String("api", "", "base URL of the Gemini API (default: the public one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*results, 0o700); err != nil {
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

	batches, err := provider.New("gemini", provider.Config{
		Secrets: []provider.Secret{{Value: getenv("GEMINI_WEBHOOK_SECRET")}},
	})
	if err != nil {
		return err
	}
	batches.Confirm, err = confirm.Gemini(confirm.GeminiOptions{APIKey: getenv("GEMINI_API_KEY"), BaseURL: *api})
	if err != nil {
		return err
	}
	batches.Handler = func(_ context.Context, e *ichido.Event) error { return keep(e, *results, out) }
	inbox, err := ichido.NewInbox(store, batches)
	if err != nil {
		return err
	}
	return serve(ctx, *listen, inbox, ichido.NewWorker(store, inbox), out)
}

// batch is what the API says of a batch. Its results are in the response, or
// in a file that the response names.
type batch struct {
	Name     string `json:"name"`
	Metadata struct {
		State string `json:"state"`
	} `json:"metadata"`
	Response *struct {
		ResponsesFile string `json:"responsesFile"`
	} `json:"response"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// keep writes what the API answered to a file with the event's id. It may run
// again for the same event, and then writes the same file.
func keep(e *ichido.Event, dir string, out io.Writer) error {
	var b batch
	if err := json.Unmarshal(e.Confirmed(), &b); err != nil { // never e.Payload(): that is only what somebody says
		return ichido.Permanent(fmt.Errorf("read the API's answer: %w", err))
	}
	file := filepath.Join(dir, e.ID()+".json")
	if err := os.WriteFile(file, e.Confirmed(), 0o600); err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	switch {
	case b.Error != nil:
		fmt.Fprintf(out, "%s failed: %q\n", b.Name, b.Error.Message)
	case b.Response != nil && b.Response.ResponsesFile != "":
		fmt.Fprintf(out, "%s is done, its responses are in %q\n", b.Name, b.Response.ResponsesFile)
	default:
		fmt.Fprintf(out, "%s is done, see %s\n", b.Name, file)
	}
	return nil
}

// serve receives deliveries and works events until ctx ends.
func serve(ctx context.Context, address string, inbox http.Handler, worker *ichido.Worker, out io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/webhooks/gemini", inbox)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10}

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
