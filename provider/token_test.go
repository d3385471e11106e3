package provider

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ichido.dev/ichido"
)

const otherToken = "0ther-k3y-for-tests-only-&=\\\"0123456789"

// tokenSource is a source whose token is at a place, and what its body proves.
func tokenSource(t *testing.T, from string) func(body string) (ichido.Proof, error) {
	t.Helper()
	f, err := parseProfile([]byte("id: x\nform: true\nverify: [{kind: token, from: \"" + from + "\"}]\nevents: {key: body, type: [\"json:type\", \"form:type\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := newSource(f, Config{Secrets: secrets(textSecret, otherToken)})
	if err != nil {
		t.Fatal(err)
	}
	return func(body string) (ichido.Proof, error) {
		return source.Provider.Verify(&ichido.Delivery{Method: http.MethodPost, Header: http.Header{}, Body: []byte(body), ReceivedAt: suiteNow})
	}
}

// A secret in the body is replaced before the body is stored or hashed.
func TestTokenInTheBodyIsRedacted(t *testing.T) {
	quoted, _ := json.Marshal(otherToken)
	inBody := map[string][2]string{ // the second is escaped as its place asks for
		"json": {`"` + textSecret + `"`, string(quoted)},
		"form": {textSecret, url.QueryEscape(otherToken)},
	}
	tests := []struct{ name, from, body, stored string }{
		{"a member", "json:passcode", `{"type":"PING", "passcode" : TOKEN,"n":1}`, `{"type":"PING", "passcode" : "[redacted]","n":1}`},
		{"a member inside", "json:a.passcode", `{"a":{"passcode":TOKEN,"b":[1]},"type":"PING"} `, `{"a":{"passcode":"[redacted]","b":[1]},"type":"PING"} `},
		{"after a byte order mark", "json:passcode", "\xef\xbb\xbf" + `{"passcode":TOKEN,"type":"PING"}`, "\xef\xbb\xbf" + `{"passcode":"[redacted]","type":"PING"}`},
		{"the first field", "form:token", "token=TOKEN&type=PING&text=a%20b+c", "token=%5Bredacted%5D&type=PING&text=a%20b+c"},
		{"the last field", "form:token", "type=PING&x=&&token=TOKEN", "type=PING&x=&&token=%5Bredacted%5D"},
		{"a field with an escaped name", "form:token", "type=PING&t%6fken=TOKEN", "type=PING&t%6fken=%5Bredacted%5D"},
	}
	for _, tt := range tests {
		verify := tokenSource(t, tt.from)
		kind, _, _ := strings.Cut(tt.from, ":")
		var proofs []ichido.Proof
		for index, token := range inBody[kind] {
			body := strings.Replace(tt.body, "TOKEN", token, 1)
			p, err := verify(body)
			if err != nil || p.Secret != index {
				t.Fatalf("%s: %+v, %v", tt.name, p, err)
			}
			if string(p.Stored) != tt.stored || p.Type != "PING" || p.Unreadable != "" {
				t.Errorf("%s: stored is %s, type %q, unreadable %q", tt.name, p.Stored, p.Type, p.Unreadable)
			}
			proofs = append(proofs, p)
		}
		a, b := proofs[0], proofs[1]
		if a.Key != b.Key || a.Fingerprint != b.Fingerprint || a.Fingerprint != sha256.Sum256(a.Stored) {
			t.Errorf("%s: the digest depends on the secret", tt.name)
		}
	}
}

// What could leave a token in the stored body is refused.
func TestTokenInTheBodyOccursOnce(t *testing.T) {
	for from, bodies := range map[string][]string{
		"json:passcode": {
			`{"passcode":"TOKEN","passcode":"TOKEN"}`, `{"passcode":"TOKEN","Passcode":"TOKEN"}`, `{"passcode":"TOKEN","pass\u0063ode":"TOKEN"}`,
			`{"passcode":["TOKEN"]}`, `["TOKEN"]`, `{"passcode":"TOKEN"`, `{"passcode":"TOKEN"}{}`, `passcode=TOKEN`, ``,
		},
		"form:token": {"token=TOKEN&token=TOKEN", "token=TOKEN&t%6fken=TOKEN", "token=TOKEN;a=b", "token=TOKEN&a=%zz", `{"token":"TOKEN"}`, ""},
	} {
		verify := tokenSource(t, from)
		for _, body := range bodies {
			if p, err := verify(strings.ReplaceAll(body, "TOKEN", textSecret)); err == nil {
				t.Errorf("%s: accepted %s, stored %s", from, body, p.Stored)
			}
		}
	}
}

func TestTokensThatCannotBeRedactedAreRefused(t *testing.T) {
	const head = "id: x\nverify: [{kind: token, from: "
	for name, text := range map[string]string{
		"a header or a member":   head + "[\"header:X-T\", \"json:token\"]}]\nevents: {key: body}\n",
		"two members":            head + "\"json:token,passcode\"}]\nevents: {key: body}\n",
		"a member or a field":    head + "[\"json:token\", \"form:token\"]}]\nevents: {key: body}\n",
		"the token as the id":    head + "\"json:token\"}]\nevents: {id: \"json:token\"}\n",
		"the token as the key":   head + "\"json:token\"}]\nevents: {key: \"{json:token}\"}\n",
		"a field as the key too": head + "\"form:token\"}]\nevents: {key: \"{form:id}-{form:token}\"}\n",
	} {
		if _, err := parseProfile([]byte(text)); err == nil {
			t.Errorf("%s: the profile is accepted", name)
		}
	}
	f, err := parseProfile([]byte(head + "\"json:token\"}]\nevents: {key: body}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"key":         {Key: "{json:token}"},
		"fingerprint": {Fingerprint: []string{"token"}},
	} {
		c.Secrets = secrets(textSecret)
		if _, err := newSource(f, c); err == nil {
			t.Errorf("the token as the %s is accepted", name)
		}
	}
}

// A sender that puts its secret into the body has another body stored than
// the one it sent, and its page says so.
func TestATokenInTheBodyIsDocumented(t *testing.T) {
	tokens := 0
	for _, name := range Names() {
		f, err := lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range f.Verify {
			if v.Kind != kindToken {
				continue
			}
			tokens++
			inBody := slices.ContainsFunc(v.From, func(from string) bool { return strings.HasPrefix(from, "json:") || strings.HasPrefix(from, "form:") })
			said := slices.ContainsFunc(f.Notes, func(note string) bool { return strings.Contains(note, "stored without it") })
			if inBody != said {
				t.Errorf("%s: the token is in %s, and the page says that the stored body is another: %v", name, v.From, said)
			}
		}
	}
	if tokens < 2 {
		t.Errorf("only %d token schemes", tokens)
	}
}
