package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const valid = `
listen: 0.0.0.0:8080
store: sqlite:data/inbox.db
retention: {bodies: 7d}
sources:
  - name: stripe
    provider: stripe
    secrets:
      - env:STRIPE_WEBHOOK_SECRET
      - {value: env:STRIPE_OLD_SECRET, not_after: 2026-12-31T00:00:00Z}
    deliver: {to: http://localhost:3000/webhooks/stripe, backoff: [1s, 2m]}
  - {name: flow, provider: github, secrets: [env:GITHUB_SECRET, file:/run/secrets/github], path: /flow, retention: {keys: forever}}
  - name: gemini-simple
    provider: shared-secret
    path_token: env:HOOK_PATH_TOKEN
    shared_secret: {header: X-Hook-Secret, value: env:HOOK_SHARED_SECRET}
    confirm: {gemini: {api_key: env:GEMINI_API_KEY}}
    body_limit: 64KiB
    rate: 100/s
`

func TestValidFileIsDecodedWithDefaults(t *testing.T) {
	f := Parse([]byte(valid))
	if err := f.Problems(); err != nil {
		t.Fatalf("valid file: %v", err)
	}
	stripe, flow, gemini := f.Sources[0], f.Sources[1], f.Sources[2]
	got := []any{
		f.Admin.Listen, stripe.Path, len(stripe.Secrets), stripe.Secrets[1].NotAfter.Year(), time.Duration(stripe.Deliver.Backoff[1]),
		time.Duration(stripe.Retention.Bodies), flow.Retention.Keys, gemini.BodyLimit, float64(gemini.Rate), gemini.Confirm.Gemini.APIKey.Ref.String(),
		flow.Secrets[0].Ref.String(), flow.Secrets[1].Ref.String(),
	}
	want := []any{
		DefaultAdminListen, "/hooks/stripe", 2, 2026, 2 * time.Minute,
		7 * 24 * time.Hour, Forever, Size(64 << 10), 100.0, "env:GEMINI_API_KEY",
		"env:GITHUB_SECRET", "file:/run/secrets/github",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded settings (-want +got):\n%s", diff)
	}
}

func TestEveryProblemIsReportedWithItsPlaceAndCure(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       []string // each must be part of one problem's text
	}{
		{"unknown setting", "sources:\n  - name: a\n    provider: stripe\n    secrts: [env:X]\n", []string{`4:5: sources[0].secrts: unknown setting "secrts"; did you mean "secrets"?`}},
		{"several at once", "listen: 8080\nsources:\n  - name: 12\n    provider: stripe\n    tolerance: 300\n    body_limit: 1MB\n", []string{
			"1:9: listen: must be text",
			"3:11: sources[0].name: must be text",
			`5:16: sources[0].tolerance: "300" is not a duration; write for example 90s, 5m, 72h or 30d`,
			`6:17: sources[0].body_limit: "1MB" is not a size`,
		}},
		{"duplicate key", "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n", []string{"2:1: "}},
		{"syntax", "sources: [\n", []string{"1:10: "}},
		{"two documents", "a: 1\n---\nb: 2\n", []string{"several documents"}},
		{"empty", "# nothing\n", []string{"the file is empty"}},
		{"alias", "sources: &x []\nlisten: *x\n", []string{"anchors and aliases are not accepted"}},
		{"null", "store:\n", []string{"store: has no value"}},
		{"in memory", "store: 'sqlite::memory:'\n", []string{"store: is not on disk"}},
		{"no sources", "listen: 127.0.0.1:1\n", []string{"sources: there are no sources"}},
		{"same name and path", "sources:\n  - {name: a, provider: github}\n  - {name: a, provider: github}\n", []string{
			"sources[1].name: is the same as that of sources[0]",
		}},
		{"not a list", "sources: github\n", []string{"1:10: sources: must be a list"}},
		{"mapping for a duration", "sources: [{name: a, provider: github, tolerance: {a: 1}}]\n", []string{"sources[0].tolerance: must be a single value"}},
		{"mapping for a time", "sources: [{name: a, provider: github, secrets: [{value: env:X, not_after: {a: 1}}]}]\n", []string{"sources[0].secrets[0].not_after: must be a single value"}},
		{"mapping for a reference", "sources: [{name: a, provider: github, secrets: [{value: {a: 1}}]}]\n", []string{"sources[0].secrets[0].value: must be a single value"}},
		{"not a mapping", "sources: [github]\n", []string{"sources[0]: must be a mapping"}},
		{"bad destination", "sources:\n  - {name: a, provider: github, deliver: {to: ftp://x}}\n", []string{"sources[0].deliver.to: is not an http or https URL"}},
		{"password in URL", "sources:\n  - {name: a, provider: github, deliver: {to: 'http://u:hunter2@x/'}}\n", []string{"holds a user name or password"}},
		{"two confirmations", "sources:\n  - {name: a, provider: github, confirm: {gemini: {api_key: env:X}, http: {url: 'https://x', done: 'true'}}}\n", []string{"names two APIs"}},
		{"wrong policy", "sources:\n  - {name: a, provider: github, on_conflict: ignore}\n", []string{"is neither accept nor reject"}},
		{"token hash", "admin: {tokens: [hello]}\nsources: [{name: a, provider: github}]\n", []string{`is not the hash of a token; run "ichido token"`}},
		{"reserved path", "sources: [{name: a, provider: github, path: /livez/}]\n", []string{"is used by the gateway itself"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Parse([]byte(test.file)).Problems()
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("no problems reported, error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(problems.Error(), want) {
					t.Errorf("problems do not say %q:\n%v", want, problems)
				}
			}
			for _, p := range problems {
				if p.Message == "" || p.Line > 0 && p.Excerpt == "" {
					t.Errorf("problem without text or excerpt: %+v", p)
				}
			}
		})
	}
}

// TestPathThatSomeRequestWouldNotMatchIsRefused: each in the place where it
// stands, with the line, a caret and a cure.
func TestPathThatSomeRequestWouldNotMatchIsRefused(t *testing.T) {
	const same = "is the same as that of sources[0]"
	for _, test := range []struct{ first, second, want string }{
		{"/a", "/a", same},
		{"/a", "/a/", same},
		{"/a/", "/a", same},
		{"/hooks", "/hooks/", same},
		{"/", "/", same},
		{"/hooks/second", "", same},
		{"/a", "/%61", "holds '%'"},
		{"/a", "/%2Fb", "holds '%'"},
		{"/a", "/b c", "holds ' '"},
		{"/a", "/b?c=d", "holds '?'"},
		{"/a", "/b#c", "holds '#'"},
		{"/a", "/{b}", "holds '{'"},
		{"/a", "/b:c", "holds ':'"},
		{"/a", "/b+c", "holds '+'"},
		{"/a", "/b\\\\c", `holds '\\'`},
		{"/a", "/b\\u0001", `holds '\x01'`},
		{"/a", "/bé", "holds 'é'"},
		{"/a", "b", "is not a path"},
		{"/a", "//b", "holds an empty segment"},
		{"/a", "/b//", "holds an empty segment"},
		{"/a", "/b/../c", "holds an empty segment"},
		{"/a", "/./b", "holds an empty segment"},
		{"/a", "/livez/", "is used by the gateway itself"},
		{"/a", "/A", ""},
		{"/a", "/a/b", ""},
		{"/a", "/", ""},
		{"/a", "/~b/c.d/e_f-9/", ""},
	} {
		file, place := "sources:\n  - {name: first, path: \""+test.first+"\", provider: github}\n", "3:5: sources[1].path: "
		if test.second == "" {
			file += "  - {name: second, provider: github}\n"
		} else {
			file += "  - {name: second, provider: github, path: \"" + test.second + "\"}\n"
			place = "3:38: sources[1].path: "
		}
		err := Parse([]byte(file)).Problems()
		var problems Problems
		switch errors.As(err, &problems); {
		case test.want == "" && err == nil:
		case test.want == "" || len(problems) != 1 || !strings.HasPrefix(err.Error(), place+test.want):
			t.Errorf("%s and %s: problems %v; want %q", test.first, test.second, err, place+test.want)
		case !strings.HasSuffix(problems[0].Excerpt, "^") || problems[0].Cure == "":
			t.Errorf("%s and %s: no caret or no cure: %+v", test.first, test.second, problems[0])
		}
	}
}

func TestProblemsNeverShowASecret(t *testing.T) {
	const canary = "whsec_canary0123456789"
	for _, file := range []string{
		"sources:\n  - name: a\n    provider: github\n    secrets:\n      - " + canary + "\n      - {value: " + canary + ", not_befor: 1}\n",
		"sources:\n  - name: a\n    provider: github\n    secrets: " + canary + "\n",
		"sources:\n  - name: a\n    path_token: [" + canary + "]\n",
		"signing: {" + canary + ": 1}\n",
		"sources:\n  - name: a\n    shared_secret: {value: " + canary + ", hader: x}\n",
		"admin:\n  tokens: ['" + canary + "']\n",
		"sources:\n  - secrets: >\n      x\n     " + canary + "\n   : y\n",
		"sources:\n  - secrets: [\n      " + canary + ",\n      {" + canary + "}\n    ]\n",
		"sources:\n  - secrets: ['" + canary + "\n",
	} {
		f := Parse([]byte(file))
		var problems Problems
		if !errors.As(f.Problems(), &problems) {
			t.Errorf("file was accepted:\n%s", file)
		}
		for _, p := range problems {
			if text := p.String() + p.Excerpt; strings.Contains(text, canary) {
				t.Errorf("a problem shows the secret: %s", text)
			}
		}
	}
}

func TestSecretReferencesAreReadExactly(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	env := map[string]string{"SET": "value", "EMPTY": "", "BLANK": " value"}
	getenv := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	pem := "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"
	for _, test := range []struct{ name, ref, want, wantErr string }{
		{"variable", "env:SET", "value", ""},
		{"unset variable", "env:UNSET", "", "UNSET is not set"},
		{"empty variable", "env:EMPTY", "", "EMPTY is empty"},
		{"blank at the start", "env:BLANK", "", "white space at byte 1"},
		{"inline", "hello", "hello", ""},
		{"inline with trailing space", "hello ", "", "white space at byte 6"},
		{"file", write("plain", "hello", 0o600), "hello", ""},
		{"one newline", write("lf", "hello\n", 0o600), "hello", ""},
		{"one CRLF", write("crlf", "hello\r\n", 0o600), "hello", ""},
		{"two newlines", write("two", "hello\n\n", 0o600), "", "white space at byte 6"},
		{"inner newline", write("inner", "hel\nlo", 0o600), "", "white space at byte 4"},
		{"only a newline", write("nothing", "\n", 0o600), "", "is empty"},
		{"PEM", write("pem", pem+"\n", 0o600), pem, ""},
		{"world-readable is accepted", write("readable", "hello", 0o644), "hello", ""},
		{"world-writable", write("writable", "hello", 0o666), "", "can be written by everybody"},
		{"missing file", "file:" + filepath.Join(dir, "none"), "", "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewRef(test.ref).Resolve(getenv)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one with %q", err, test.wantErr)
				}
				if strings.Contains(err.Error(), "hello") {
					t.Errorf("error shows the value: %v", err)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestEnvironmentAloneMakesTheGeminiSource(t *testing.T) {
	env := map[string]string{"HOOK_PATH_TOKEN": "t", "HOOK_SHARED_SECRET": "s"}
	getenv := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	f, err := FromEnvironment(getenv)
	if err != nil || f.Problems() != nil {
		t.Fatalf("both variables set: %v, %v", err, f.Problems())
	}
	got := []string{f.Store, f.Sources[0].Path, f.Sources[0].Provider, f.Sources[0].PathToken.Ref.String()}
	if diff := cmp.Diff([]string{"sqlite:webhook.db", "/hooks/gemini", "shared-secret", "env:HOOK_PATH_TOKEN"}, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	env["HOOK_DB"], env["GEMINI_API_KEY"] = "other.db", "k"
	if f, _ = FromEnvironment(getenv); f.Store != "sqlite:other.db" || f.Sources[0].Confirm.Gemini == nil {
		t.Errorf("HOOK_DB and GEMINI_API_KEY were not used: %+v", f.Config)
	}
	delete(env, "HOOK_PATH_TOKEN")
	if _, err = FromEnvironment(getenv); err == nil || !strings.Contains(err.Error(), "HOOK_PATH_TOKEN") {
		t.Errorf("one of two variables: error %v, want one that names the missing one", err)
	}
	delete(env, "HOOK_SHARED_SECRET")
	if f, err = FromEnvironment(getenv); f != nil || err != nil {
		t.Errorf("no variables: %v, %v; want nothing", f, err)
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("sources: [{name: a, secrets: {value: x}}]"))
	f.Add([]byte("a: &b [*b]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := Parse(data)
		var problems Problems
		if err := file.Problems(); err != nil && !errors.As(err, &problems) {
			t.Errorf("error is not a list of problems: %v", err)
		}
	})
}
