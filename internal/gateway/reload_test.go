package gateway

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido/internal/config"
)

func TestReloadSwapsTheWholeConfigurationOrNothing(t *testing.T) {
	r := start(t, yaml(githubSource))
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	if status, _, _ := r.do("POST", "/hooks/github", signGitHub(t, body), body); status != 200 {
		t.Fatalf("before: %d", status)
	}
	for name, bad := range map[string]string{
		"empty secret":     "  - {name: github, provider: github, secrets: ['']}\n",
		"placeholder":      "  - {name: github, provider: github, secrets: [undefined]}\n",
		"unset variable":   "  - {name: github, provider: github, secrets: [env:NOPE]}\n",
		"no secret":        "  - {name: github, provider: github}\n",
		"unknown provider": "  - {name: github, provider: gitbub, secrets: [" + githubSecret + "]}\n",
		"half a file":      "  - {name: github, provider: github, sec",
	} {
		r.reload = yaml(bad)
		if err := r.Reload(); err == nil {
			t.Errorf("%s: reload was accepted", name)
		} else if strings.Contains(err.Error(), githubSecret) {
			t.Errorf("%s: the error shows a secret", name)
		}
		body := `{"zen":"` + name + `","hook_id":1,"hook":{}}`
		if status, _, _ := r.do("POST", "/hooks/github", signGitHub(t, body), body); status != 200 {
			t.Errorf("%s: the old secret no longer verifies: %d", name, status)
		}
	}
	r.reload = yaml("  - {name: a, provider: gitbub}\n  - {name: b, provider: github, secrets: [" + githubSecret + "], path_token: abc}\n" +
		"  - {name: c, provider: github, secrets: [" + githubSecret + "], deliver: {to: 'https://x.example', headers: [Cookie]}}\n")
	checked := config.Parse([]byte(r.reload))
	Check(checked, func(string) (string, bool) { return "", false }, SecretsHere)
	var problems config.Problems
	if err := r.Reload(); !errors.As(err, &problems) || len(problems) != 3 {
		t.Errorf("of a file with three problems a reload says:\n%v", err)
	} else if diff := cmp.Diff(checked.Problems(), err); diff != "" {
		t.Errorf("a reload and a check find different problems (-check +reload):\n%s", diff)
	}
	r.reload = yaml("  - {name: github, provider: github, secrets: [another-secret-0123456789]}\n")
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := r.do("POST", "/hooks/github", signGitHub(t, body), body); status != 401 {
		t.Errorf("after the reload the old secret was answered %d", status)
	}
}

// TestReloadNamesWhatOnlyARestartChanges: also the second time, for what is in
// force is what the process was started with.
func TestReloadNamesWhatOnlyARestartChanges(t *testing.T) {
	r := start(t, yaml(githubSource))
	warned := func() []string {
		if err := r.Reload(); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		var names []string
		for line := range strings.Lines(r.log.String()) {
			var entry struct{ Level, Setting string }
			if err := json.Unmarshal([]byte(line), &entry); err == nil && entry.Level == "WARN" && entry.Setting != "" {
				names = append(names, entry.Setting)
			}
		}
		r.log.Reset()
		return names
	}
	if got := warned(); got != nil {
		t.Errorf("without a change it warned of %v", got)
	}
	r.reload = strings.Replace(yaml(githubSource), "127.0.0.1:0", "127.0.0.1:1", 1)
	r.reload = strings.Replace(r.reload, "'127.0.0.1:0'", "'127.0.0.1:2'", 1) + "store: sqlite:other.db\n" +
		"limits: {connections: 1, small_bodies: 1MiB, large_bodies: 1MiB, unverified_rate: 1/s, events: 1, free_disk: 1MiB}\n"
	want := []string{
		"listen", "admin.listen", "store", "limits.connections", "limits.small_bodies", "limits.large_bodies",
		"limits.unverified_rate", "limits.events", "limits.free_disk",
	}
	for range 2 {
		if diff := cmp.Diff(want, warned()); diff != "" {
			t.Errorf("warned of (-want +got):\n%s", diff)
		}
	}
	r.reload = yaml(githubSource)
	if got := warned(); got != nil {
		t.Errorf("back as it was, it warned of %v", got)
	}
}

// TestEveryLimitIsNamedWhereItOnlyChangesWithARestart keeps that list complete.
func TestEveryLimitIsNamedWhereItOnlyChangesWithARestart(t *testing.T) {
	other := &config.Config{Limits: config.Limits{Connections: 1, SmallBodies: 1, LargeBodies: 1, UnverifiedRate: 1, Events: 1, FreeDisk: 1}}
	if got, want := len(fixedDifferences(&config.Config{}, other)), reflect.TypeFor[config.Limits]().NumField(); got != want {
		t.Errorf("%d limits are named, there are %d", got, want)
	}
}
