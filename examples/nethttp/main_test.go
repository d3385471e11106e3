package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido/provider"
)

const secret = "made-up-github-secret-4Zx9Wb"

func pullRequest(number int) string {
	return fmt.Sprintf(`{"action":"opened","number":%d,"pull_request":{"id":1},"repository":{"id":42,"full_name":"octo-org/inbox"},"sender":{"id":1}}`, number)
}

func send(t *testing.T, url, event, secret, body string) int {
	t.Helper()
	header, err := provider.Sign("github", provider.SignConfig{Secret: secret, Type: event, Time: time.Now()}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url+"/webhooks/github", strings.NewReader(body))
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

func TestTheServiceReceivesWebhooks(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "nethttp.db")}, secret, in)
		in.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewReader(out)
	line := func() string {
		t.Helper()
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	url := strings.TrimPrefix(line(), "listening on ")

	// What was there before is there still.
	response, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	before, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(before), "before") {
		t.Errorf("GET / is answered %s, %v", before, err)
	}

	for _, step := range []struct {
		event, secret, body string
		want                int
	}{
		{"pull_request", "another-made-up-secret", pullRequest(7), http.StatusUnauthorized},
		{"push", secret, pullRequest(7), http.StatusForbidden},
		{"pull_request", secret, pullRequest(7), http.StatusOK},
		{"pull_request", secret, pullRequest(7), http.StatusOK}, // a copy
	} {
		if got := send(t, url, step.event, step.secret, step.body); got != step.want {
			t.Errorf("%s is answered %d, want %d", step.event, got, step.want)
		}
	}
	if got, want := line(), `pull request 7 of "octo-org/inbox": "opened"`; got != want {
		t.Errorf("the handler prints %s, want %s", got, want)
	}
	send(t, url, "pull_request", secret, pullRequest(8))
	if got, want := line(), `pull request 8 of "octo-org/inbox": "opened"`; got != want {
		t.Errorf("the handler prints %s, want %s: the copy was handled", got, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheServiceNeedsASecret(t *testing.T) {
	err := run(t.Context(), []string{"-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "nethttp.db")}, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("without a secret: %v", err)
	}
}
