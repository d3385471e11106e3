package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
	"ichido.dev/ichido/provider"
)

// TestEveryProviderCanBeForwarded: the headers that a profile names must all
// be ones that a destination takes.
func TestEveryProviderCanBeForwarded(t *testing.T) {
	names := provider.Names()
	if len(names) == 0 {
		t.Fatal("there are no providers")
	}
	for _, name := range names {
		if _, err := forward(name, &config.Deliver{To: "http://127.0.0.1:1/"}, eventHeaders(name), nil, slog.Default()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDestinationHasItsWholeTimeForAnAnswer: a client waits less for the
// header of an answer than for all of it, unless it is told.
func TestDestinationHasItsWholeTimeForAnAnswer(t *testing.T) {
	const timeout = 2 * time.Minute
	client, err := outbound.NewClient(clientOptions(&config.Deliver{To: "http://127.0.0.1:1/", Timeout: config.Duration(timeout)}))
	if err != nil {
		t.Fatal(err)
	}
	if header := client.Transport.(*http.Transport).ResponseHeaderTimeout; header != timeout || client.Timeout != timeout {
		t.Errorf("the header of an answer may take %s, all of it %s; want %s for both", header, client.Timeout, timeout)
	}
}

func TestOnlyALiteralHostIsAllowedByWritingIt(t *testing.T) {
	for address, want := range map[string]string{
		"http://localhost:3000/":        "localhost",
		"http://LOCALHOST/":             "LOCALHOST",
		"http://127.0.0.1:3000/":        "127.0.0.1",
		"https://[::1]/":                "::1",
		"http://10.1.2.3/in":            "10.1.2.3",
		"https://app.internal/":         "",
		"https://localhost.example.com": "",
		"http://127.0.0.1.example.com":  "",
		"http://[::1":                   "",
	} {
		var got string
		if hosts := literalHost(address); len(hosts) == 1 {
			got = hosts[0]
		}
		if got != want {
			t.Errorf("%s allows %q, want %q", address, got, want)
		}
	}
}

// TestEndDuringASlowForwardSpendsNoAttempt: the destination is not to blame.
func TestEndDuringASlowForwardSpendsNoAttempt(t *testing.T) {
	arrived, ended := make(chan struct{}), make(chan struct{})
	destination := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		close(arrived)
		<-req.Context().Done()
		close(ended)
	}))
	defer destination.Close()
	r := open(t, yaml("  - {name: github, provider: github, secrets: ["+githubSecret+"], deliver: {to: '"+destination.URL+"', attempts: 1}}\n"))
	r.drainFor = time.Millisecond
	stop := r.run()
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	_, text, _ := r.do("POST", "/hooks/github", signGitHub(t, body), body)
	<-arrived
	stop()
	<-ended
	rec, err := r.store.Get(t.Context(), idOf(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if rec.State != ichido.Pending || rec.Attempts != 0 || rec.Deaths != 0 {
		t.Errorf("the event is %s (%s) after %d attempts and %d deaths, want it pending after none", rec.State, rec.Cause, rec.Attempts, rec.Deaths)
	}
}

// TestRetryAfterMakesAttemptsNoCloserThanTheSourcesTable, whose first bound is
// here so long that no other table has such a wait.
func TestRetryAfterMakesAttemptsNoCloserThanTheSourcesTable(t *testing.T) {
	arrived := make(chan struct{})
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		close(arrived)
	}))
	defer destination.Close()
	r := open(t, yaml("  - {name: github, provider: github, secrets: ["+githubSecret+"], deliver: {to: '"+destination.URL+"', backoff: [36500d]}}\n"))
	stop := r.run()
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	_, text, _ := r.do("POST", "/hooks/github", signGitHub(t, body), body)
	<-arrived
	stop()
	rec, err := r.store.Get(t.Context(), idOf(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if wait := rec.Due.Sub(rec.ReceivedAt); rec.State != ichido.Pending || rec.Attempts != 1 || wait < 25*time.Hour {
		t.Errorf("the event is %s (%s) after %d attempts, and waits %s", rec.State, rec.Cause, rec.Attempts, wait)
	}
}
