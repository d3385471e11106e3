package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido/provider"
)

const (
	secret = "whsec_dGhpcyBpcyBhIG1hZGUtdXAgc2VjcmV0IG9mIGdlbWluaQ=="
	apiKey = "made-up-api-key-4Lm2"
)

// api answers as the Gemini API does: batches/done and batches/failed have
// ended, batches/early has not, and there is no other.
func api(asked chan<- string) http.Handler {
	mux := http.NewServeMux()
	reply := func(name, rest string) {
		mux.HandleFunc("GET /v1beta/batches/"+name, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Goog-Api-Key") != apiKey {
				w.WriteHeader(http.StatusForbidden)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"name":"batches/%s"%s}`, name, rest)
			asked <- name
		})
	}
	reply("done", `,"metadata":{"state":"BATCH_STATE_SUCCEEDED"},"done":true,"response":{"responsesFile":"files/batch-done"}`)
	reply("failed", `,"metadata":{"state":"BATCH_STATE_FAILED"},"done":true,"error":{"code":13,"message":"out of luck"}`)
	reply("early", `,"metadata":{"state":"BATCH_STATE_RUNNING"}`)
	return mux
}

// program is the example, running.
type program struct {
	url, results string
	lines        *bufio.Reader
	stop         func()
}

func start(t *testing.T, apiURL string) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{results: filepath.Join(dir, "results")}
	getenv := func(name string) string {
		return map[string]string{"GEMINI_WEBHOOK_SECRET": secret, "GEMINI_API_KEY": apiKey}[name]
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	args := []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(dir, "gemini.db"), "-results", p.results, "-api", apiURL}
	go func() {
		err := run(ctx, args, getenv, in)
		in.CloseWithError(err)
		ended <- err
	}()
	p.lines = bufio.NewReader(out)
	p.url = strings.TrimPrefix(p.line(t), "listening on ") + "/webhooks/gemini"
	p.stop = func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return p
}

// line returns the next line that the program prints.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// notify sends a webhook about a batch, and returns the status.
func (p *program) notify(t *testing.T, id, eventType, batch, secret string) int {
	t.Helper()
	body := fmt.Sprintf(`{"type":%q,"version":"v1","data":{"id":"batches/%s","output":"made up"}}`, eventType, batch)
	header, err := provider.Sign("gemini", provider.SignConfig{Secret: secret, ID: id, Time: time.Now()}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestOnlyWhatTheAPIConfirmsIsKept(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(api(asked))
	defer server.Close()
	p := start(t, server.URL)

	if status := p.notify(t, "msg_1", "batch.succeeded", "done", "whsec_YW5vdGhlciBtYWRlLXVwIHNlY3JldCBvZiBnZW1pbmk="); status != http.StatusUnauthorized {
		t.Errorf("a webhook with another secret is answered %d", status)
	}
	for range 2 { // a copy changes nothing
		if status := p.notify(t, "msg_1", "batch.succeeded", "done", secret); status != http.StatusOK {
			t.Fatalf("a webhook is answered %d", status)
		}
	}
	if got, want := p.line(t), `batches/done is done, its responses are in "files/batch-done"`; got != want {
		t.Errorf("the program prints %s, want %s", got, want)
	}
	p.notify(t, "msg_2", "batch.failed", "failed", secret)
	if got, want := p.line(t), `batches/failed failed: "out of luck"`; got != want {
		t.Errorf("the program prints %s, want %s", got, want)
	}

	// Early, and false: nothing is printed and nothing is kept.
	p.notify(t, "msg_3", "batch.succeeded", "early", secret)
	p.notify(t, "msg_4", "batch.succeeded", "failed", secret)
	p.notify(t, "msg_5", "batch.failed", "failed", secret)
	if got, want := p.line(t), `batches/failed failed: "out of luck"`; got != want {
		t.Errorf("the program prints %s, want %s", got, want)
	}
	seen := map[string]int{}
	for range 5 {
		seen[<-asked]++
	}
	p.stop()
	if seen["done"] != 1 || seen["early"] != 1 || seen["failed"] != 3 {
		t.Errorf("the API was asked %v", seen)
	}
	files, err := os.ReadDir(p.results)
	if err != nil || len(files) != 3 {
		t.Fatalf("%d results are kept, %v; want 3", len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(p.results, f.Name()))
		if err != nil || strings.Contains(string(data), "made up") || !strings.Contains(string(data), `"done":true`) {
			t.Errorf("%s holds %s, %v; want what the API said", f.Name(), data, err)
		}
	}
}

func TestGeminiNeedsASecretAndAKey(t *testing.T) {
	for missing, env := range map[string]map[string]string{
		"secrets": {"GEMINI_API_KEY": apiKey},
		"API key": {"GEMINI_WEBHOOK_SECRET": secret},
	} {
		dir := t.TempDir()
		args := []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(dir, "gemini.db"), "-results", filepath.Join(dir, "results")}
		err := run(t.Context(), args, func(name string) string { return env[name] }, io.Discard)
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}
