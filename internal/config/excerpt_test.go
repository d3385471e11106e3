package config

import (
	"errors"
	"strings"
	"testing"
)

func problemsOf(t *testing.T, file string) Problems {
	t.Helper()
	var problems Problems
	if err := Parse([]byte(file)).Problems(); err != nil && !errors.As(err, &problems) {
		t.Fatal(err)
	}
	return problems
}

// TestExcerptShowsNamesAndHarmlessValuesOnly, with the caret where it was.
func TestExcerptShowsNamesAndHarmlessValuesOnly(t *testing.T) {
	for _, test := range []struct{ line, at, want, caret string }{
		{"  - {name: a, provider: stripe, secrets: [env:STRIPE_SECRET]}", "[", "  - {name: a, provider: stripe, secrets: [env:STRIPE_SECRET]}", "["},
		{`    deliver: {to: "http://user:passw0rd@localhost", attempts: 3}`, "attempts", "    deliver: {to: ***, attempts: 3}", "attempts"},
		{`    deliver: {attempts: 12x, to: "http://x/?token=SEKRIT"}`, "to", "    deliver: {attempts: 12x, to: ***}", "to"},
		{"    secrets: [env:whsec_SEKRIT]", "env", "    secrets: [***]", "***"},
		{"    secrets: [file:SEKRIT, file:/run/secrets/a]", "file:/", "    secrets: [***, file:/run/secrets/a]", "file:/"},
		{"    path: /hooks/SEKRIT", "/", "    path: ***", "***"},
		{"    name: sk_live_SEKRIT", "sk", "    name: ***", "***"},
		{"    name: aB3dE5fG7hI9jK1l", "aB", "    name: ***", "***"},
		{"    - SEKRIT", "-", "    - ***", "-"},
		{"    timeout: 30s # SEKRIT", "30s", "    timeout: 30s *** ***", "30s"},
		{"    tolerance: 5m SEKRIT", "5m", "    tolerance: 5m ***", "5m"},
		{`    {"value":"SEKRIT: name: SEKRIT"}`, `"value"`, `    {"value":***}`, `"value"`},
		{"    secrets: {SEKRIT: 1, hunter: 2, value: x}", "hunter", "    secrets: {***: ***, ***: ***, value: ***}", "***: ***, value"},
		{"    forward: SEKRIT", "forward", "    forward: ***", "forward"},
		{"    keys: https://u:SEKRIT@x", "https", "    keys: ***", "***"},
		{"    keys: published", "published", "    keys: published", "published"},
	} {
		got := excerpt([]string{test.line}, 1, strings.Index(test.line, test.at)+1)
		lines := strings.Split(got, "\n")
		text := strings.TrimPrefix(lines[0], "    1 | ")
		if at := strings.Index(lines[1], "^") - len("      | "); text != test.want || at != strings.Index(text, test.caret) {
			t.Errorf("%s\ngot\n%s\nwant %q with the caret under %q", test.line, got, test.want, test.caret)
		}
	}
	under := []string{"  - secrets:", "      hunter: 1", "    deliver:", "      hunter: 1"}
	if got := excerpt(under, 2, 1); strings.Contains(got, "hunter") {
		t.Errorf("a name under secrets is shown: %s", got)
	}
	if got := excerpt(under, 4, 1); !strings.Contains(got, "hunter: ***") {
		t.Errorf("a misspelt setting is not shown: %s", got)
	}
}

// TestNoSettingShowsASecretThatWasWrittenThere: every setting of the file, in
// every way to break the line it is in.
func TestNoSettingShowsASecretThatWasWrittenThere(t *testing.T) {
	if len(knownKeys) < 40 {
		t.Fatalf("only %d settings are known", len(knownKeys))
	}
	seen := 0
	for _, key := range knownKeys {
		for _, secret := range []string{"whsec_SEKRIT0123456789", "http://u:SEKRIT@x/", "http://x/?t=SEKRIT", "SEKRIT 1", "[SEKRIT 1]", "{SEKRIT: 1}", "'SEKRIT\\", "${SEKRIT"} {
			if key == "name" || key == "provider" {
				secret = strings.ReplaceAll(secret, "SEKRIT", "sk_SEKRIT") // any other word may be a name
			}
			for _, form := range []string{
				"sources:\n  - {name: a, provider: github, KEY: SECRET, oops: 1}\n",
				"sources:\n  - {name: a, provider: github, deliver: {KEY: SECRET, oops: 1}}\n",
				"sources:\n  - name: a\n    KEY: SECRET\n   - oops\n",
				"sources:\n  - name: a\n    KEY:\n      - x\n     - SECRET\n",
				"KEY: SECRET\noops\n",
				"\tKEY: SECRET\n",
			} {
				file := strings.NewReplacer("KEY", key, "SECRET", secret).Replace(form)
				for _, p := range problemsOf(t, file) {
					seen++
					if text := p.String() + "\n" + p.Excerpt; strings.Contains(text, "SEKRIT") {
						t.Errorf("of\n%sit shows\n%s", file, text)
					}
				}
			}
		}
	}
	if seen < 1000 {
		t.Errorf("only %d problems were looked at", seen)
	}
}

// TestSyntaxErrorsSayWhatYAMLExpects in the commonest cases.
func TestSyntaxErrorsSayWhatYAMLExpects(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"tab":            {"sources:\n  - name: a\n\tprovider: github\n", "3:1: a tab stands where YAML expects spaces; indent with spaces only"},
		"indentation":    {"sources:\n  - name: a\n    provider: github\n   secrets: [x]\n", "4:4: the line is not indented like its neighbours; indent it"},
		"list item":      {"sources:\n  - name: a\n    secrets:\n      - x\n    - y\n", "5:5: the list item is not indented like its neighbours; begin each"},
		"deep list item": {"sources:\n  - name: a\n    provider: b\n    secrets:\n    - x\n     - y\n", "sources[0].secrets[0]: goes on in the next line; write it on one line, and indent"},
		"double quote":   {"sources:\n  - name: \"a\n    provider: github\n", "a quote is opened and not closed; close"},
		"single quote":   {"sources:\n  - name: 'a\n    provider: github\n", "a quote is opened and not closed; close"},
		"duplicate":      {"sources:\n  - name: a\n    name: b\n", "3:5: name is written twice; keep this one or the one in line 2"},
		"no colon":       {"sources:\n  - name: a\n    provider github\n", "3:5: is not a setting with a value; write \"name: value\" with a space"},
		"two colons":     {"sources:\n  - name: a\n    provider: git: hub\n", "3:15: a second colon stands where the value should end; put the value in quotes"},
		"reserved":       {"sources:\n  - name: a\n    provider: @x\n", "3:15: the value begins with a character that means something in YAML; put"},
		"open bracket":   {"sources: [{name: a, provider: github, secrets: [env:X}]\n", "a bracket is not closed; close every ["},
		"open brace":     {"sources: {name: a,\n", "a bracket is opened and not closed; close every ["},
		"closed bracket": {"sources: a]\n", ";"},
	} {
		problems := problemsOf(t, test.file)
		if len(problems) == 0 || !strings.Contains(problems[0].String(), test.want) {
			t.Errorf("%s: %v; want %q", name, problems, test.want)
		}
	}
}

func TestAddressesThatCannotBeListenedOnAreRefused(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:8080": true, ":8080": true, "[::1]:8080": true, "localhost:0": true, "0.0.0.0:65535": true,
		"0.0.0.0:99999": false, "0.0.0.0:-1": false, "0.0.0.0": false, "8080": false, "http://x:80": false, "127.0.0.1:": false, "a b:80": false,
	} {
		problems := problemsOf(t, "listen: \""+address+"\"\nsources: [{name: a, provider: github}]\n")
		if got := len(problems) == 0; got != good || !good && (len(problems) != 1 || problems[0].Path != "listen" || problems[0].Cure == "") {
			t.Errorf("%s: %v", address, problems)
		}
	}
}

// TestOneMistakeIsOneProblem: what follows from it is not said as well.
func TestOneMistakeIsOneProblem(t *testing.T) {
	for _, file := range []string{
		"sources: github\n",
		"source: [{name: a, provider: github}]\n",
		"sources: [{nmae: a, provider: github}]\n",
		"sources: [{name: a, povider: github}]\n",
		"sources: [{name: 12, provider: github}]\n",
		"sources: [{name: a, provider: github}, {name: a, provider: github}]\n",
		"sources: [{name: a, provider: github, deliver: {tos: 'http://x'}}]\n",
		"sources: [{name: a, provider: github, deliver: 'http://x'}]\n",
		"sources: [{name: a, provider: github, confirm: {gemni: {api_key: env:X}}}]\n",
		"sources: [{name: a, provider: github, confirm: {gemini: {api_ky: env:X}}}]\n",
		"listen: [a]\nsources: [{name: a, provider: github}]\n",
	} {
		problems := problemsOf(t, file)
		if len(problems) != 1 || problems[0].Cure == "" {
			t.Errorf("%s%v", file, problems)
		}
	}
}
