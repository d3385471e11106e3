package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
	"ichido.dev/ichido/provider"
)

// TestSecretsThatAreElsewhereAreNoProblem: to look at the store, nobody needs
// the secrets of the server. What else is wrong is said all the same.
func TestSecretsThatAreElsewhereAreNoProblem(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for _, name := range provider.Names() {
		profile, err := provider.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		timed := ""
		if signsTime(profile) {
			timed = ", tolerance: 1m"
		}
		for _, setting := range profile.Settings {
			if setting.Required {
				timed += ", settings: {" + setting.Name + ": 'https://x.example/'}"
			}
		}
		source := fmt.Sprintf("  - {name: a, provider: %s, path_token: env:A, secrets: [env:B], confirm: {gemini: {api_key: env:C}}%s}\n", name, timed)
		if name == "shared-secret" {
			source = "  - {name: a, provider: shared-secret, path_token: env:A, shared_secret: {value: env:B}, confirm: {http: {url: 'https://x.example/', done: 'true', headers: {A: env:C}}}}\n"
		}
		text := "signing: [env:D]\n" + yaml(source)
		here, elsewhere := config.Parse([]byte(text)), config.Parse([]byte(text))
		Check(here, none, SecretsHere)
		var problems config.Problems
		if err := here.Problems(); !errors.As(err, &problems) || len(problems) != 4 {
			t.Errorf("%s: with four secrets missing the problems are\n%v", name, err)
		}
		Check(elsewhere, none, SecretsElsewhere)
		if err := elsewhere.Problems(); err != nil {
			t.Errorf("%s: with secrets elsewhere there are problems: %v", name, err)
		}
	}
	file := config.Parse([]byte(yaml("  - {name: a, provider: stripe, secrets: [env:B], retention: {keys: 1h}}\n")))
	Check(file, none, SecretsElsewhere)
	if err := file.Problems(); err == nil {
		t.Error("with secrets elsewhere another problem was not found")
	}
}

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

func TestUnknownProviderIsReportedWithTheNearestName(t *testing.T) {
	for name, want := range map[string]string{
		"gitbub":           `1 of 1: sources[0].provider: there is no provider "gitbub"; did you mean "github"?`,
		"Stripe":           `1 of 1: sources[0].provider: there is no provider "Stripe"; did you mean "stripe"?`,
		"standard":         `1 of 1: sources[0].provider: there is no provider "standard"; use one of ` + strings.Join(provider.Names(), ", "),
		"whsec_0123456789": `1 of 1: sources[0].provider: there is no provider "***"; use one of ` + strings.Join(provider.Names(), ", "),
		"x\x1b[31m":        `1 of 1: sources[0].provider: there is no provider "***"; use one of ` + strings.Join(provider.Names(), ", "),
	} {
		file := config.Parse([]byte(yaml(fmt.Sprintf("  - {name: a, provider: %q}\n", name))))
		Check(file, func(string) (string, bool) { return "", false }, SecretsHere)
		var problems config.Problems
		if !errors.As(file.Problems(), &problems) {
			t.Fatalf("provider %q was accepted", name)
		}
		p := problems[0]
		if got := fmt.Sprintf("1 of %d: %s: %s; %s", len(problems), p.Path, p.Message, p.Cure); got != want || p.Line == 0 {
			t.Errorf("got  %s (line %d)\nwant %s", got, p.Line, want)
		}
	}
}
