package provider

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"

	"ichido.dev/ichido"
)

func sourceOf(t *testing.T, profile string) ichido.Provider {
	t.Helper()
	f, err := parseProfile([]byte("id: x\n" + profile))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Secrets: secrets(textSecret)}
	if f.Verify[0].Kind == kindNone {
		c.Secrets = nil
	}
	source, err := newSource(f, c)
	if err != nil {
		t.Fatal(err)
	}
	return source.Provider
}

// A MAC that does not cover the body proves who sent, not what: another body
// under it is the same event.
func TestMACWithoutTheBodyOnlyAuthenticates(t *testing.T) {
	p := sourceOf(t, `verify: [{kind: mac, alg: hmac-sha256, weak_ok: true, msg: "{header:X-Id}.{ts}", ts: {from: "header:X-T", unit: s}, sig: {from: "header:X-S", encoding: hex}}]
events: {key: signed}
`)
	mac := hmac.New(sha256.New, []byte(textSecret))
	mac.Write([]byte("a.1767225600"))
	h := http.Header{"X-Id": {"a"}, "X-T": {"1767225600"}, "X-S": {hex.EncodeToString(mac.Sum(nil))}}
	var keys []string
	for _, body := range []string{`{"n":1}`, `{"n":2}`} {
		proof, err := p.Verify(&ichido.Delivery{Header: h, Body: []byte(body), ReceivedAt: suiteNow})
		if err != nil || proof.Strength != ichido.Authenticated || proof.Fingerprint != sha256.Sum256([]byte("a.1767225600")) {
			t.Fatalf("%+v, %v", proof, err)
		}
		keys = append(keys, proof.Key)
	}
	if keys[0] != keys[1] {
		t.Errorf("keys are %v", keys)
	}
}

func TestTokenInTheQuery(t *testing.T) {
	p := sourceOf(t, "verify: [{kind: token, from: \"query:token\"}]\nevents: {key: body}\n")
	for query, want := range map[string]error{
		"token=" + textSecret:                          nil,
		"a=b&token=" + textSecret:                      nil,
		"token=" + textSecret + "&token=" + textSecret: errRepeated,
		"token=" + textSecret + "x":                    errTokenMismatch,
		"":                                             errMissing,
		"Token=" + textSecret:                          errMissing,
		"token=%zz":                                    errMissing,
		"token=%6b3y-for-tests-only-0123456789abcdef&x=1": nil,
	} {
		_, err := p.Verify(&ichido.Delivery{RawQuery: query, Header: http.Header{}, Body: []byte("{}"), ReceivedAt: suiteNow})
		if want == nil && err != nil || want != nil && err != want {
			t.Errorf("%s: got %v, want %v", query, err, want)
		}
	}
}

func TestNothingToVerifyIsWeak(t *testing.T) {
	p := sourceOf(t, "verify: [{kind: none, weak_ok: true}]\nevents: {key: body}\n")
	proof, err := p.Verify(&ichido.Delivery{Header: http.Header{}, Body: []byte("{}"), ReceivedAt: suiteNow})
	if err != nil || proof.Strength != ichido.Weak || proof.Key == "" {
		t.Errorf("%+v, %v", proof, err)
	}
}

// What a description says of a variant follows from its scheme.
func TestDescriptionsFollowFromTheScheme(t *testing.T) {
	want := map[string]string{
		"github/default": ichido.Verified, "gitlab/token": ichido.Authenticated, "gitlab/signing-token": ichido.Verified,
		"gemini/dynamic": ichido.Authenticated, "gemini/v1a": ichido.Verified, "shared-secret/default": ichido.Authenticated,
	}
	for _, name := range Names() {
		p, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Variants {
			if strength, ok := want[name+"/"+v.Name]; ok && strength != v.Strength {
				t.Errorf("%s/%s is %s", name, v.Name, v.Strength)
			}
			if v.TypeSigned && (name == "github" || name == "shopify") {
				t.Errorf("%s: the type is not signed", name)
			}
		}
	}
}
