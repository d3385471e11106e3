package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido/provider"
)

const secret = "made-up-ledger-secret-2Hn5Tc8"

// start runs the program and returns its address, and a function that ends it.
func start(t *testing.T, path string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-db", path}, secret, in)
		in.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// send posts a body that is signed off now, and returns status and answer.
func send(t *testing.T, url, body string, off time.Duration) string {
	t.Helper()
	header, err := provider.Sign("hmac", provider.SignConfig{Secret: secret, Time: time.Now().Add(off)}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url+"/webhook", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Sprint(response.StatusCode)
	}
	return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(answer)))
}

const (
	accepted  = `200 {"accepted":true,"duplicate":false}`
	duplicate = `200 {"accepted":true,"duplicate":true}`
)

func TestEachPaymentIsAddedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	url, stop := start(t, path)
	for _, step := range []struct {
		body string
		off  time.Duration
		want string
	}{
		{`{"id":"p1","amount":500}`, 0, accepted},
		{`{"id":"p1","amount":500}`, 0, duplicate},
		{`{"amount": 500, "id": "p1"}`, -time.Minute, duplicate},
		{`{"id":"p1","amount":501}`, 0, "409"},
		{`{"id":"p2","amount":20}`, 0, accepted},
		{`{"id":"p3","amount":1}`, -time.Hour, "401"},
		{`{"id":"p3","amount":1}`, time.Hour, "401"},
		{`{"id":"p3","amount":`, 0, "400"},
		{`{"id":"","amount":1}`, 0, "409"},
		{`{"amount":1}`, 0, "409"},
		{`{"id":"p3","amount":0}`, 0, "409"},
		{`{"id":"p3","amount":-1}`, 0, "409"},
		{`{"id":"p3","amount":true}`, 0, "409"},
		{`{"id":"p3","amount":1.5}`, 0, "409"},
		{`{"id":"p3","amount":"1"}`, 0, "409"},
	} {
		if got := send(t, url, step.body, step.off); got != step.want {
			t.Errorf("%s, signed %s from now, is answered %s, want %s", step.body, step.off, got, step.want)
		}
	}
	response, err := http.Post(url+"/webhook", "application/json", strings.NewReader(`{"id":"p3","amount":1}`))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("an unsigned payment is answered %v, %v", response, err)
	}
	response.Body.Close()
	expectTotal(t, url, path, 520)
	stop()

	// A restart keeps both: the total, and what it knows.
	url, stop = start(t, path)
	defer stop()
	if got := send(t, url, `{"id":"p1","amount":500}`, 0); got != duplicate {
		t.Errorf("after a restart a copy is answered %s", got)
	}
	if got := send(t, url, `{"id":"p3","amount":80}`, 0); got != accepted {
		t.Errorf("what was refused before is answered %s", got)
	}
	expectTotal(t, url, path, 600)
}

// expectTotal reads the total over HTTP and over a connection of its own.
func expectTotal(t *testing.T, url, path string, want int64) {
	t.Helper()
	response, err := http.Get(url + "/total")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var served, stored int64
	if _, err := fmt.Fscan(response.Body, &served); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT amount FROM total WHERE id = 1").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if served != want || stored != want {
		t.Errorf("the total is %d, and %d in the database; want %d", served, stored, want)
	}
}

func TestTheLedgerNeedsASecret(t *testing.T) {
	err := run(t.Context(), []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "ledger.db")}, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("without a secret: %v", err)
	}
}
