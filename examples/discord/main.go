// Discord answers slash commands. Discord wants the answer in the response,
// within three seconds, so the handler runs during the request: an interaction
// is claimed, answered, and completed, and a copy of it runs nothing.
//
// The signature (Ed25519) is verified first. Discord checks an endpoint with
// PINGs, and with wrong signatures on purpose; both are answered without any
// code here.
//
//	export DISCORD_PUBLIC_KEY=...   # of the application, 64 hexadecimal digits
//	go run ./examples/discord
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
	if err := run(ctx, os.Args[1:], os.Getenv("DISCORD_PUBLIC_KEY"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "discord:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, publicKey string, out io.Writer) error {
	flags := flag.NewFlagSet("discord", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "address to listen on")
	path := flags.String("db", "discord.db", "database file")
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

	interactions, err := provider.New("discord", provider.Config{Secrets: []provider.Secret{{Value: publicKey}}})
	if err != nil {
		return err
	}
	if interactions.Claims, err = store.Claims(ctx); err != nil {
		return err
	}
	interactions.Inline = answer
	inbox, err := ichido.NewInbox(store, interactions)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/interactions", inbox)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx)) // finishes what is in flight
	}
}

// Types of interactions and of answers, of Discord's API.
const (
	applicationCommand = 2
	channelMessage     = 4
)

// answer handles one interaction. What it writes is the response; an error, or
// an answer that is not 2xx, lets Discord's user try again.
func answer(_ context.Context, w http.ResponseWriter, e *ichido.Event) error {
	var interaction struct {
		Type int `json:"type"`
		Data struct {
			Name string `json:"name"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e.Payload(), &interaction); err != nil {
		return ichido.Permanent(fmt.Errorf("read the interaction: %w", err))
	}
	if interaction.Type != applicationCommand || interaction.Data.Name != "hello" {
		return ichido.Permanent(errors.New("only the command hello is known"))
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{
		"type": channelMessage,
		"data": map[string]any{
			"content":          "Hello, once.",
			"allowed_mentions": map[string]any{"parse": []string{}}, // mention nobody
		},
	})
}
