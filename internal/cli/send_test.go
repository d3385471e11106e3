package cli

import "testing"

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
