package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"ichido.dev/ichido/provider"
)

func TestCommittedPageIsCurrent(t *testing.T) {
	want, err := render(filepath.Join("..", "..", "profiles"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "providers.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("docs/providers.md is out of date: run go generate ./provider\n%s", diff)
	}
}

// A profile without words is no profile.
func TestEveryProviderIsDescribed(t *testing.T) {
	for _, name := range provider.Names() {
		p, err := provider.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{
			"scheme": p.Scheme, "signed": p.Signed, "unsigned": p.Unsigned, "retries": p.Retries, "retry": p.Retry,
			"success": p.Success, "stops": p.Stops, "retention": p.Retention, "sample": p.SampleBody, "confidence": p.Confidence,
		} {
			if text == "" {
				t.Errorf("%s: %s is missing", name, what)
			}
		}
	}
}
