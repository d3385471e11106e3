package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
)

// TestKeySetsAreFetchedByTheGuardedClient: what a name resolves to may be
// private, and a redirect may go there.
func TestKeySetsAreFetchedByTheGuardedClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer server.Close()
	for _, test := range []struct {
		keys    string
		reaches bool
	}{
		{"published", false},
		{"https://keys.example.com/jwks.json", false},
		{server.URL, true},
	} {
		b := &builder{file: config.Parse([]byte(yaml(githubSource))), opts: &Options{}, at: "sources[0]", in: &config.Source{Keys: test.keys}}
		client := b.keyClient()
		if client == nil {
			t.Fatalf("keys %s are fetched by a client without a guard", test.keys)
		}
		res, err := client.Get(server.URL)
		if err == nil {
			res.Body.Close()
		}
		if test.reaches != (err == nil) || !test.reaches && !errors.Is(err, outbound.ErrForbidden) {
			t.Errorf("keys %s: a private address was answered %v, want it reached: %t", test.keys, err, test.reaches)
		}
		if err := b.file.Problems(); err != nil {
			t.Errorf("keys %s: %v", test.keys, err)
		}
	}
}
