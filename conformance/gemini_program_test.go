package conformance

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ichido.dev/ichido"
)

// hookEnvironment is what row A10 needs, and nothing else.
func hookEnvironment(more ...string) []string {
	return append([]string{"HOOK_PATH_TOKEN=" + hookToken, "HOOK_SHARED_SECRET=" + hookSecret}, more...)
}

// freePorts makes `ichido serve` listen wherever there is room.
var freePorts = []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}

func testEnvironmentMakesTheReceiver(t *testing.T) {
	t.Run("both variables are required", func(t *testing.T) {
		for _, c := range []struct{ env, missing string }{
			{"HOOK_PATH_TOKEN=" + hookToken, "HOOK_SHARED_SECRET"},
			{"HOOK_SHARED_SECRET=" + hookSecret, "HOOK_PATH_TOKEN"},
		} {
			for _, args := range [][]string{{"serve"}, {"check"}} {
				for _, env := range [][]string{{c.env}, {c.env, c.missing + "="}} {
					dir := t.TempDir()
					out := call(t, dir, env, args...)
					if out.code != 2 || !strings.Contains(out.stderr, c.missing+" is not set") {
						t.Errorf("%v with only %s: exit code %d, %s", args, strings.SplitN(c.env, "=", 2)[0], out.code, out.stderr)
					}
					if strings.Contains(out.stderr+out.stdout, hookToken) || strings.Contains(out.stderr+out.stdout, hookSecret) {
						t.Error("the message holds a secret")
					}
					if files, _ := os.ReadDir(dir); len(files) != 0 {
						t.Errorf("%v left %v", args, files)
					}
				}
			}
		}
	})
	t.Run("the default database", func(t *testing.T) { serveFromEnvironment(t, hookEnvironment(), "webhook.db") })
	t.Run("another database", func(t *testing.T) {
		serveFromEnvironment(t, hookEnvironment("HOOK_DB=data/hooks.db"), filepath.Join("data", "hooks.db"))
	})
	t.Run("the API key", func(t *testing.T) {
		dir := t.TempDir()
		// It reaches the confirmation, which refuses one that cannot be a key.
		out := call(t, dir, hookEnvironment("GEMINI_API_KEY=short7c"), "serve")
		if out.code != 2 || !strings.Contains(out.stderr, "API key") || strings.Contains(out.stderr, "short7c") {
			t.Errorf("a short API key: exit code %d, %s", out.code, out.stderr)
		}
		out = call(t, dir, hookEnvironment("GEMINI_API_KEY="+apiKey), "check")
		if out.code != 0 || !strings.Contains(out.stdout, "/hooks/gemini") || strings.Contains(out.stdout+out.stderr, apiKey) {
			t.Errorf("a good API key: exit code %d, %s%s", out.code, out.stdout, out.stderr)
		}
	})
}

// serveFromEnvironment runs the receiver, ends it in two ways, and looks at
// what is left.
func serveFromEnvironment(t *testing.T, env []string, database string) {
	dir := t.TempDir()
	s := start(t, dir, env, freePorts...)
	send := func(body, status string) {
		t.Helper()
		post(t, s.url+hookPath, secretHeader(hookSecret), body).says(t, `{"status":"`+status+`"}`)
	}
	send(completed, "accepted")
	send(completed, "duplicate")
	send(`{}`, "ignored")
	post(t, s.url+"/hooks/gemini/another-token-0123456", secretHeader(hookSecret), completed).is(t, http.StatusNotFound, ichido.CodeNotFound)
	post(t, s.url+"/hooks/gemini", secretHeader(hookSecret), completed).is(t, http.StatusNotFound, ichido.CodeNotFound)
	post(t, s.url+hookPath, nil, completed).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM: %s", code, s.log)
	}
	if _, err := os.Stat(filepath.Join(dir, database)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ichido-data")); err == nil {
		t.Error("a configuration was written, though the environment is one")
	}

	// What was acknowledged is there after a kill, too.
	s = start(t, dir, env, freePorts...)
	send(completed, "duplicate")
	send(`{"name":"operations/2","state":"DONE"}`, "accepted")
	if code := s.stop(t, syscall.SIGKILL); code != -1 {
		t.Errorf("exit code %d after SIGKILL", code)
	}
	s = start(t, dir, env, freePorts...)
	send(`{"name":"operations/2","state":"DONE"}`, "duplicate")
	if code := s.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	list := events(t, dir, database)
	if len(list.Events) != 2 || list.Events[0].Key != "operations/1:SUCCEEDED" || list.Events[1].Key != "operations/2:DONE" {
		t.Errorf("stored: %+v", list)
	}
	// Without an API to ask, nothing is taken for a fact.
	for _, e := range list.Events {
		if e.State != string(ichido.Pending) || e.Attempts != 0 {
			t.Errorf("%s is %s after %d attempts", e.Key, e.State, e.Attempts)
		}
	}
	for _, secret := range []string{hookToken, hookSecret} {
		if strings.Contains(s.log.String(), secret) {
			t.Error("the log holds a secret")
		}
	}
}
