package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido/provider"
)

// app is a Discord application and the example that answers for it.
type app struct{ url, seed string }

func start(t *testing.T) *app {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "discord.db")}, hex.EncodeToString(public), in)
		in.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &app{strings.TrimSpace(strings.TrimPrefix(line, "listening on ")) + "/interactions", hex.EncodeToString(private.Seed())}
}

// send posts a body that is signed off now, and returns status and answer.
func (a *app) send(t *testing.T, body string, off time.Duration) (int, string) {
	t.Helper()
	header, err := provider.Sign("discord", provider.SignConfig{Secret: a.seed, Time: time.Now().Add(off)}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return a.post(t, header, body)
}

func (a *app) post(t *testing.T, header http.Header, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, a.url, strings.NewReader(body))
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
	return response.StatusCode, strings.TrimSpace(string(answer))
}

func command(id, name string) string {
	return fmt.Sprintf(`{"id":%q,"application_id":"1","type":2,"token":"made-up","version":1,"data":{"id":"2","name":%q,"type":1}}`, id, name)
}

func TestInteractionsAreAnsweredInTheResponse(t *testing.T) {
	a := start(t)
	if status, answer := a.send(t, `{"id":"10","type":1,"token":"made-up","version":1}`, 0); status != http.StatusOK || answer != `{"type":1}` {
		t.Errorf("PING is answered %d %s", status, answer)
	}
	status, answer := a.send(t, command("11", "hello"), 0)
	var message struct {
		Type int
		Data struct{ Content string }
	}
	if err := json.Unmarshal([]byte(answer), &message); err != nil || status != http.StatusOK || message.Type != 4 || message.Data.Content != "Hello, once." {
		t.Errorf("the command is answered %d %s, %v", status, answer, err)
	}
	if status, answer := a.send(t, command("11", "hello"), -time.Second); status != http.StatusNoContent || answer != "" {
		t.Errorf("a copy is answered %d %s", status, answer)
	}
	// What fails may come again.
	for range 2 {
		if status, _ := a.send(t, command("12", "unknown"), 0); status != http.StatusConflict {
			t.Errorf("an unknown command is answered %d", status)
		}
	}
}

func TestWrongSignaturesAreAnswered401(t *testing.T) {
	a := start(t)
	body := command("20", "hello")
	other := &app{url: a.url, seed: strings.Repeat("07", ed25519.SeedSize)}
	for what, send := range map[string]func() (int, string){
		"another application's": func() (int, string) { return other.send(t, body, 0) },
		"a stale one":           func() (int, string) { return a.send(t, body, -time.Hour) },
		"one of the future":     func() (int, string) { return a.send(t, body, time.Hour) },
		"none":                  func() (int, string) { return a.post(t, http.Header{}, body) },
		"another one's PING":    func() (int, string) { return other.send(t, `{"type":1}`, 0) },
	} {
		if status, answer := send(); status != http.StatusUnauthorized {
			t.Errorf("%s is answered %d %s", what, status, answer)
		}
	}
	if status, _ := a.send(t, body, 0); status != http.StatusOK {
		t.Errorf("the genuine one is answered %d", status)
	}
}
