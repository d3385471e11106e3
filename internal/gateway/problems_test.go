package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido/internal/config"
)

// checked returns what is wrong with a configuration, "path: message; cure".
func checked(t *testing.T, file *config.File) []string {
	t.Helper()
	Check(file, func(string) (string, bool) { return "", false }, SecretsHere)
	var problems config.Problems
	if err := file.Problems(); err != nil && !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range problems {
		if p.Cure == "" {
			t.Errorf("a problem without a cure: %s", p)
		}
		p.Line = 0
		lines = append(lines, p.String())
	}
	return lines
}

// TestEveryMistakeIsSaidOnceAndWithItsCure: all of a source at once, each
// where it is.
func TestEveryMistakeIsSaidOnceAndWithItsCure(t *testing.T) {
	const good = "secrets: [" + githubSecret + "]"
	for _, test := range []struct {
		name, source string
		want         []string
	}{
		{"good", "name: a, provider: github, " + good, nil},
		{"unknown provider and more", "name: a b, provider: githb, secrets: ['', q], path_token: abc", []string{
			"sources[0].name: must be 1 to 64 letters, digits, '-', '_' or '.'; rename it, for example my-source",
			`sources[0].provider: there is no provider "githb"; did you mean "github"?`,
			"sources[0].secrets[0]: is empty; set it, an empty secret would let anyone sign",
			"sources[0].secrets[1]: has only 1 bytes after decoding, at least 16 are needed; make a longer one at the sender (or set allow_short_secret: true)",
			"sources[0].path_token: must be at least 16 letters, digits, '-', '.', '_' and '~'; make one with `openssl rand -hex 24`",
		}},
		{"unknown provider and no secrets", "name: a, provider: githb, secrets: []", []string{
			`sources[0].provider: there is no provider "githb"; did you mean "github"?`,
			"sources[0].secrets: is empty; set at least one, as the sender shows it",
		}},
		{"bad name", "name: a b, provider: github, " + good, []string{
			"sources[0].name: must be 1 to 64 letters, digits, '-', '_' or '.'; rename it, for example my-source",
		}},
		{"placeholder for a token", "name: a, provider: github, path_token: your-path-token-here, " + good, []string{
			"sources[0].path_token: is a placeholder; make one with `openssl rand -hex 24`",
		}},
		{"scalar secrets", "name: a, provider: github, secrets: " + githubSecret, []string{
			"sources[0].secrets: must be a list; write [VALUE], or each value on its own line after '- '",
		}},
		{"secret for secrets", "name: a, provider: github, secret: [" + githubSecret + "]", []string{
			`sources[0].secret: unknown setting "secret"; did you mean "secrets"?`,
		}},
		{"no secrets", "name: a, provider: github", []string{
			"sources[0]: secrets is empty; set at least one, as the sender shows it",
		}},
		{"variable of a shell", `name: a, provider: github, secrets: ["${STRIPE}"]`, []string{
			"sources[0].secrets[0]: variables are not replaced in the file; write env:STRIPE",
		}},
		{"one secret missing, one empty", "name: a, provider: github, secrets: [env:NOT_SET, '']", []string{
			"sources[0].secrets[0]: environment variable NOT_SET is not set; export NOT_SET=... before the start, or correct the name",
			"sources[0].secrets[1]: is empty; set it, an empty secret would let anyone sign",
		}},
		{"file missing", "name: a, provider: github, secrets: [file:/no/such-file]", []string{
			"sources[0].secrets[0]: read secret: /no/such-file: no such file or directory; after file: write the path of a file that this user may read",
		}},
		{"destination without a scheme", "name: a, provider: github, deliver: {to: localhost:3000}, " + good, []string{
			"sources[0].deliver.to: is not an http or https URL; write for example https://app.example.com/webhooks",
		}},
		{"headers that are not forwarded", "name: a, provider: github, deliver: {to: 'https://x.example', headers: [Cookie]}, " + good, []string{
			`sources[0].deliver.headers: header "Cookie" is never forwarded: it belongs to the connection, may hold a credential, or is set by ichido; remove it from headers`,
		}},
		{"no shared secret", "name: a, provider: shared-secret, path_token: " + pathToken, []string{
			"sources[0]: has no shared secret; add shared_secret: {value: env:NAME}",
		}},
		{"short shared secret", "name: a, provider: shared-secret, shared_secret: {value: abc}", []string{
			"sources[0].shared_secret.value: has only 3 bytes after decoding, at least 16 are needed; make a longer one at the sender (or set allow_short_secret: true)",
		}},
		{"keys that are no URL", "name: a, provider: gemini, keys: nowhere", []string{
			"sources[0].keys: url is not a plain https URL; write published, file:PATH of a JWKS, or an https URL",
		}},
		{"long tolerance", "name: a, provider: stripe, tolerance: 2h, " + good, []string{
			"sources[0].tolerance: is more than an hour; a captured request could be replayed as long; lower it",
		}},
		{"expression", "name: a, provider: github, confirm: {http: {url: 'https://x.example/{payload.id}', done: 'body.('}}, " + good, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := checked(t, config.Parse([]byte(yaml("  - {"+test.source+"}\n"))))
			if test.name == "expression" {
				if len(got) != 1 || !strings.HasPrefix(got[0], "sources[0].confirm: ") {
					t.Errorf("problems: %q", got)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEverySigningKeyIsChecked, also beside one that is missing.
func TestEverySigningKeyIsChecked(t *testing.T) {
	want := []string{
		"signing[0]: environment variable NOT_SET is not set; export NOT_SET=... before the start, or correct the name",
		`signing[1]: must hold 24 to 64 bytes; write env:NAME or file:PATH of a key: "whsec_" and the base64 of 24 to 64 random bytes`,
	}
	file := config.Parse([]byte("signing: [env:NOT_SET, whsec_YWJj]\n" + yaml(githubSource)))
	if diff := cmp.Diff(want, checked(t, file)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestCheckNeverShowsWhatMayBeSecret: wherever it was written by mistake.
func TestCheckNeverShowsWhatMayBeSecret(t *testing.T) {
	const good = "secrets: [" + githubSecret + "]"
	for _, source := range []string{
		"name: 'a b', provider: github, " + good + ", deliver: {to: 'http://user:SEKRIT@localhost'}, attempts: 1",
		"name: 'a b', provider: github, " + good + ", deliver: {to: 'http://x.example/?token=SEKRIT', attempts: x}",
		"name: 'a b', provider: github, secrets: [env:whsec_SEKRIT]",
		"name: 'a b', provider: github, secrets: [env:SEKRITsekrit0123]",
		"name: 'a b', provider: github, secrets: [env:x-SEKRIT]",
		"name: 'a b', provider: github, secrets: [file:whsec_SEKRIT]",
		"name: 'a b', provider: github, secrets: [file:SEKRIT]",
		"name: 'a b', provider: github, keys: 'file:SEKRIT'",
		"name: 'a b', provider: github, keys: 'https://u:SEKRIT@x'",
		"name: 'a b', provider: sk_SEKRIT, " + good,
		"name: sk_live_SEKRIT/, provider: github, " + good,
		"name: a, provider: github, path: '/hooks/SEKRIT%', " + good,
		"name: a, provider: github, deliver: {to: 'https://x.example', headers: ['X-Key: SEKRIT']}, " + good,
		"name: a, provider: github, deliver: {to: 'https://x.example', allow: ['x:SEKRIT']}, " + good,
		"name: a, provider: github, settings: {'sk_SEKRIT': x}, " + good,
		"name: a, provider: github, variants: ['sk_SEKRIT'], " + good,
		"name: a, provider: github, tolerance: whsec_SEKRIT, " + good,
		"name: a, provider: github, body_limit: 'x SEKRIT', " + good,
		"name: a, provider: github, allowed_repositories: ['SEKRIT@x'], " + good,
		"name: a, provider: github, confirm: {http: {url: 'https://x.example/?k=SEKRIT', done: 'SEKRIT(', headers: {'Bearer SEKRIT': 'env:X'}}}, " + good,
		"name: 'a b', provider: github, path_token: SEKRIT, " + good,
		"name: 'a b', provider: github, secrets: [hunter SEKRIT]",
	} {
		file := config.Parse([]byte(yaml("  - {" + source + "}\n")))
		Check(file, func(string) (string, bool) { return "", false }, SecretsHere)
		var problems config.Problems
		if !errors.As(file.Problems(), &problems) {
			t.Errorf("accepted: %s", source)
		}
		for _, p := range problems {
			if text := p.String() + "\n" + p.Excerpt; strings.Contains(text, "SEKRIT") {
				t.Errorf("of {%s} it shows:\n%s", source, text)
			}
		}
	}
}

// TestEnvironmentIsSpokenOfByItsVariables: nobody wrote sources[0].
func TestEnvironmentIsSpokenOfByItsVariables(t *testing.T) {
	for _, test := range []struct {
		token, secret string
		want          []string
	}{
		{pathToken, githubSecret, nil},
		{"short", "brief", []string{
			"HOOK_SHARED_SECRET: has only 5 bytes after decoding, at least 16 are needed; make one with \"openssl rand -hex 24\", and give it to the sender too",
			"HOOK_PATH_TOKEN: must be at least 16 letters, digits, '-', '.', '_' and '~'; make one with `openssl rand -hex 24`",
		}},
	} {
		getenv := func(name string) (string, bool) {
			v, ok := map[string]string{"HOOK_PATH_TOKEN": test.token, "HOOK_SHARED_SECRET": test.secret}[name]
			return v, ok
		}
		file, err := config.FromEnvironment(getenv)
		if err != nil {
			t.Fatal(err)
		}
		Check(file, getenv, SecretsHere)
		var problems config.Problems
		errors.As(file.Problems(), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	}
}

func TestConfigurationWithSecretsThatOthersReadIsWarnedOf(t *testing.T) {
	for _, test := range []struct {
		secret string
		mode   os.FileMode
		want   int
	}{
		{githubSecret, 0o644, 1},
		{githubSecret, 0o640, 1},
		{githubSecret, 0o600, 0},
		{"env:GITHUB_SECRET", 0o644, 0},
	} {
		path := filepath.Join(t.TempDir(), "ichido.yaml")
		if err := os.WriteFile(path, []byte(yaml("  - {name: a, provider: github, secrets: ["+test.secret+"]}\n")), test.mode); err != nil {
			t.Fatal(err)
		}
		file, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := file.Warnings(); len(got) != test.want {
			t.Errorf("%s with mode %04o: warned %q", test.secret, test.mode, got)
		}
	}
}

// TestExampleOfTheDocumentationIsGood: people copy it.
func TestExampleOfTheDocumentationIsGood(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(data), "```yaml\n")
	example, _, found := strings.Cut(example, "```")
	file := config.Parse([]byte(example))
	Check(file, func(string) (string, bool) { return "", false }, SecretsElsewhere)
	if err := file.Problems(); err != nil || !found || len(file.Sources) != 2 {
		t.Errorf("%d sources: %v", len(file.Sources), err)
	}
}
