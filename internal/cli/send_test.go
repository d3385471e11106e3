package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestListenerOfAllAddressesIsReachedOnThisMachine(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080":   "127.0.0.1:8080",
		"0.0.0.0:8080":     "127.0.0.1:8080",
		":8080":            "127.0.0.1:8080",
		"[::]:8080":        "[::1]:8080",
		"[::1]:80":         "[::1]:80",
		"10.0.0.0:8080":    "10.0.0.0:8080",
		"hooks.local:8080": "hooks.local:8080",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s is reached at %s, want %s", listen, got, want)
		}
	}
}

// TestSendTakesNoIDOrTypeThatDoesNotPrint: they stand in headers. Others stand
// in the sample as they are.
func TestSendTakesNoIDOrTypeThatDoesNotPrint(t *testing.T) {
	send := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		env := Env{
			Args:      append([]string{"send"}, args...),
			LookupEnv: func(name string) (string, bool) { return "secret-of-this-test-0123456789", name == "SECRET" },
			Stdout:    &stdout, Stderr: &stderr,
		}
		return Run(t.Context(), env), stdout.String(), stderr.String()
	}
	to := []string{"--dry-run", "--to", "http://127.0.0.1:1/hooks", "--secret", "env:SECRET"}
	for _, value := range []string{"x\r\nEvil: 1", "x\n", "\x00", "\x7f", "\u0085", "\xff", "\u202e"} {
		for _, flag := range []string{"--type", "--id", "--variant"} {
			code, _, text := send(append([]string{"github", flag, value}, to...)...)
			if code != exitUsage || !strings.Contains(text, flag+": ") || !strings.Contains(text, "does not print") {
				t.Errorf("%s %q: exit code %d, want %d; it says %q", flag, value, code, exitUsage, text)
			}
		}
	}
	for _, id := range []string{`a"b\c`, "é 一/?&#%"} {
		code, out, text := send(append([]string{"stripe", "--json", "--id", id}, to...)...)
		var request struct{ Body string }
		var body struct{ ID string }
		if code != exitOK || json.Unmarshal([]byte(out), &request) != nil || json.Unmarshal([]byte(request.Body), &body) != nil || body.ID != id {
			t.Errorf("--id %q: exit code %d, %s; in the body it is %q: %s", id, code, text, body.ID, request.Body)
		}
	}
}
