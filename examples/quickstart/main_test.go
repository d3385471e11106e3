package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido/provider"
)

func TestQuickstartReceivesAndRefuses(t *testing.T) {
	const secret = "whsec_quickstart_0123456789"
	t.Setenv("STRIPE_WEBHOOK_SECRET", secret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, filepath.Join(t.TempDir(), "quickstart.db")) }()

	const body = `{"id":"evt_1","object":"event","type":"charge.succeeded"}`
	header, err := provider.Sign("stripe", provider.SignConfig{Secret: secret, Time: time.Now()}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	post := func(h http.Header) int {
		r, err := http.NewRequest(http.MethodPost, "http://"+listener.Addr().String()+"/webhooks/stripe", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		answer, err := http.DefaultClient.Do(r) // waits until the listener is served
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if status := post(header); status != 200 {
		t.Errorf("a genuine event was answered %d", status)
	}
	header.Set("Stripe-Signature", strings.Replace(header.Get("Stripe-Signature"), "v1=", "v1=00", 1))
	if status := post(header); status != 401 {
		t.Errorf("a forged event was answered %d", status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestQuickstartSaysWhyItCannotServe(t *testing.T) {
	t.Setenv("STRIPE_WEBHOOK_SECRET", "whsec_quickstart_0123456789")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := serve(t.Context(), listener, filepath.Join(t.TempDir(), "quickstart.db")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}

func TestReadmeShowsThisProgram(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(source), "\t// region: quickstart\n")
	region, _, ended := strings.Cut(rest, "\t// endregion\n")
	if !found || !ended {
		t.Fatal("the region is not there")
	}
	region = strings.ReplaceAll("\n"+region, "\n\t", "\n")[1:]
	_, rest, found = strings.Cut(string(readme), "<!-- examples/quickstart/main.go: quickstart -->\n```go\n")
	shown, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended || shown != region {
		t.Errorf("the README shows\n%s\nbut the program is\n%s", shown, region)
	}
	if n := strings.Count(region, "\n"); n > 15 {
		t.Errorf("the snippet has %d lines", n)
	}
}
