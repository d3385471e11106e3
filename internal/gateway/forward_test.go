package gateway

import (
	"testing"

	"ichido.dev/ichido/internal/config"
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
		if _, err := forward(&config.Deliver{To: "http://127.0.0.1:1/"}, eventHeaders(name), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
