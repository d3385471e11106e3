package provider

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func secrets(values ...string) []Secret {
	var all []Secret
	for _, v := range values {
		all = append(all, Secret{Value: v})
	}
	return all
}

func ptr[T any](v T) *T { return &v }

// refusedSecrets are values that no door may let in.
var refusedSecrets = []string{
	"", " ", "\t\n", " " + textSecret, textSecret + "\n", textSecret + " ", textSecret + "\r\n",
	"undefined", "null", "None", "nil", "<nil>", "changeme", "change-me", "CHANGEME", "secret", "password", "example", "todo",
	"xxx", "xxxxxxxxxxxxxxxxxxxxxxxx", "XXXXXXXXXXXXXXXXXXXXXXXX", "whsec_xxxxxxxxxxxxxxxxxxxxxxxx", "whsec_changeme", "****************",
	"your-webhook-signing-secret", "<the signing secret>", "whsec_....................",
	"${STRIPE_WEBHOOK_SECRET}", "a-prefix-before-${VAR}-and-after", "{{ .Values.webhookSecret }}", "short", "fifteen-bytes-x",
	"line\nbreak-in-the-middle-of-it", "nul\x00byte-in-the-middle-of-it", "invalid-utf8-\xff\xfe-in-the-middle", strings.Repeat("a", 5000),
}

func TestSecretsAreRefused(t *testing.T) {
	for _, s := range suites(t) {
		if s.secret == "" {
			continue
		}
		for _, value := range refusedSecrets {
			c := s.config(t)
			c.Secrets = append(c.Secrets[:0:0], Secret{Value: value})
			if _, err := New(s.profile, c); err == nil {
				t.Errorf("%s: accepted the secret %q", s.profile, value)
			} else if len(value) > 8 && strings.Contains(err.Error(), value) {
				t.Errorf("%s: the error holds the value: %v", s.profile, err)
			}
			c.Secrets = []Secret{{Value: s.secret}, {Value: value}}
			if _, err := New(s.profile, c); err == nil {
				t.Errorf("%s: accepted the second secret %q", s.profile, value)
			}
		}
	}
}

func TestUndecodableSecretsAreRefused(t *testing.T) {
	tests := map[string][]string{
		"standard-webhooks": {"whsec_", "whsec_!!!!", "whsec_Ap5pHTr383oOG2PMO/SgAbA2s6O9bn44qEarY5WPVpI", "whsec_Ap5pHTr383oOG2PMO_SgAbA2s6O9bn44qEarY5WPVpI=", "whsec_c2hvcnQ=", "whpk_", "whpk_c2hvcnQ=", "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
		"svix":              {"whsec_", "whsec_!!!!", "whpk_!!!!"},
		"gemini":            {"whsec_", "not base64 at all, this is"},
		"openai":            {"whsec_", "whsec_!!!!", "whsec_c2hvcnQ="},
		"gitlab":            {"whsec_", "whsec_!!!!"},
		"discord":           {strings.Repeat("0", 63), strings.Repeat("0", 64), strings.Repeat("zz", 32), "01" + strings.Repeat("00", 31), strings.Repeat("ab", 31)},
	}
	for profile, values := range tests {
		for _, value := range values {
			if _, err := New(profile, Config{Secrets: secrets(value)}); err == nil {
				t.Errorf("%s: accepted %q", profile, value)
			}
		}
	}
}

// Under a key of small order anyone can sign: shown for each, and refused.
func TestKeysOfSmallOrderVerifyForgeries(t *testing.T) {
	identity := append([]byte{1}, make([]byte, 31)...)
	forged := append(identity, make([]byte, 32)...) // R is the identity, S is zero
	shown := 0
	for _, text := range smallOrder {
		key, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 400 {
			message := fmt.Appendf(nil, "%d", i)
			if ed25519.Verify(key, message, forged) {
				shown++
				break
			}
		}
		if _, err := New("discord", Config{Secrets: secrets(text)}); err == nil {
			t.Errorf("accepted %s", text)
		}
		key[31] |= 0x80
		if _, err := checkEd25519(key); err == nil {
			t.Errorf("accepted %x", key)
		}
	}
	if shown < 5 {
		t.Errorf("only %d of the keys let a forgery through: the list is wrong", shown)
	}
	good := ed25519.NewKeyFromSeed(sha512.New().Sum(nil)[:32]).Public().(ed25519.PublicKey)
	if _, err := checkEd25519(good); err != nil {
		t.Errorf("refused a good key: %v", err)
	}
}

func TestConfigProblems(t *testing.T) {
	day := 24 * time.Hour
	tests := []struct {
		name, profile string
		c             Config
		want          []string
	}{
		{"no secrets", "stripe", Config{}, []string{"secrets is empty"}},
		{"neither secret nor key set", "gemini", Config{}, []string{"key set"}},
		{"an unknown profile", "nope", Config{}, []string{"unknown", "stripe"}},
		{"too many secrets", "stripe", Config{Secrets: slices.Repeat(secrets(textSecret), 9)}, []string{"at most 8"}},
		{"zero tolerance", "stripe", Config{Secrets: secrets(textSecret), Tolerance: ptr(time.Duration(0))}, []string{"tolerance must be positive"}},
		{"negative tolerance", "stripe", Config{Secrets: secrets(textSecret), Tolerance: ptr(-time.Second)}, []string{"tolerance must be positive"}},
		{"a fraction of a second", "stripe", Config{Secrets: secrets(textSecret), Tolerance: ptr(time.Millisecond)}, []string{"whole seconds"}},
		{"a day", "discord", Config{Secrets: secrets(hex.EncodeToString(suiteEd.Public().(ed25519.PublicKey))), Tolerance: &day}, []string{"AllowToleranceOverAnHour"}},
		{"the largest duration", "stripe", Config{Secrets: secrets(textSecret), Tolerance: ptr(time.Duration(1<<63 - 1).Truncate(time.Second))}, []string{"tolerance"}},
		{"a tolerance without a time", "github", Config{Secrets: secrets(textSecret), Tolerance: ptr(time.Minute)}, []string{"no configured variant", "signed time"}},
		{"an unknown variant", "github", Config{Secrets: secrets(textSecret), Variants: []string{"md5"}}, []string{"no variant"}},
		{"two algorithms at once", "github", Config{Secrets: secrets(textSecret), Variants: []string{"default", "sha1-legacy"}}, []string{"two sources"}},
		{"two kinds of tokens", "gitlab", Config{Secrets: secrets(textSecret, whsecSecret)}, []string{"two sources"}},
		{"a variant without its key", "gemini", Config{Secrets: secrets(whsecSecret), Variants: []string{"static", "v1a"}}, []string{"v1a", "key set"}},
		{"a variant without its audience", "gemini", Config{KeySet: &KeySet{}, Variants: []string{"dynamic"}}, []string{"settings.audience"}},
		{"a secret that no variant takes", "gemini", Config{Secrets: secrets(whsecSecret), KeySet: &KeySet{}, Variants: []string{"v1a"}}, []string{"secrets[0]", "no configured variant takes"}},
		{"a key set by http", "gemini", Config{KeySet: &KeySet{URL: "http://keys.example/jwks"}}, []string{"key_set", "https"}},
		{"a key set with a password", "gemini", Config{KeySet: &KeySet{URL: "https://a:b@keys.example/jwks"}}, []string{"key_set"}},
		{"a key set without keys", "gemini", Config{KeySet: &KeySet{JSON: []byte(`{"keys":[]}`)}}, []string{"key_set", "no usable"}},
		{"a key set that is none", "gemini", Config{KeySet: &KeySet{JSON: []byte(`<html>`)}}, []string{"key_set"}},
		{"an unknown setting", "stripe", Config{Secrets: secrets(textSecret), Settings: map[string]string{"audience": "x"}}, []string{"settings.audience", "unknown"}},
		{"a blank setting", "gemini", Config{KeySet: &KeySet{}, Settings: map[string]string{"audience": " "}}, []string{"settings.audience"}},
		{"a malformed header name", "shared-secret", Config{Secrets: secrets(textSecret), Settings: map[string]string{"header": "X Hook"}}, []string{"settings.header"}},
		{"a blank event", "github", Config{Secrets: secrets(textSecret), AllowedEvents: []string{""}}, []string{"allowed_events[0]"}},
		{"a malformed repository", "github", Config{Secrets: secrets(textSecret), AllowedRepositories: []string{"inbox"}}, []string{"allowed_repositories[0]", "owner/name"}},
		{"repositories of a sender without", "stripe", Config{Secrets: secrets(textSecret), AllowedRepositories: []string{"a/b"}}, []string{"no repositories"}},
		{"a key that is not signed", "github", Config{Secrets: secrets(textSecret), Key: "{header:X-GitHub-Delivery}"}, []string{"key", "not covered"}},
		{"a key without a placeholder", "stripe", Config{Secrets: secrets(textSecret), Key: "all"}, []string{"key"}},
		{"a malformed key", "stripe", Config{Secrets: secrets(textSecret), Key: "{json:id"}, []string{"key"}},
		{"a fingerprint that is not bound", "gemini", Config{KeySet: &KeySet{JSON: suiteKeySet(t)}, Settings: map[string]string{"audience": "a"}, Variants: []string{"dynamic"}, Fingerprint: []string{"id"}}, []string{"fingerprint"}},
		{"a negative limit", "stripe", Config{Secrets: secrets(textSecret), BodyLimit: -1}, []string{"body_limit"}},
		{"a secret that ends before it begins", "stripe", Config{Secrets: []Secret{{Value: textSecret, NotBefore: suiteNow, NotAfter: suiteNow.Add(-time.Hour)}}}, []string{"secrets[0]", "not_after"}},
		{"several at once", "github", Config{Secrets: secrets("", textSecret, "null"), AllowedRepositories: []string{"x"}, BodyLimit: -1}, []string{"allowed_repositories[0]", "body_limit"}},
		{"all secrets", "stripe", Config{Secrets: secrets("", "null", "short")}, []string{"secrets[0]", "secrets[1]", "secrets[2]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.profile, tt.c)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), textSecret) || strings.Contains(err.Error(), whsecSecret) {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

func TestSourceHasTheProfilesSettings(t *testing.T) {
	s, err := New("github", Config{Secrets: secrets(textSecret)})
	if err != nil || s.Name != "github" || s.BodyLimit != 25<<20 || !s.AcceptUnreadable || s.AcceptConflict {
		t.Errorf("source is %+v, %v", s, err)
	}
	s, err = New("github", Config{Name: "gh", Secrets: secrets(textSecret), BodyLimit: 1000, AcceptUnreadable: ptr(false), AcceptConflict: ptr(true)})
	if err != nil || s.Name != "gh" || s.BodyLimit != 1000 || s.AcceptUnreadable || !s.AcceptConflict {
		t.Errorf("source is %+v, %v", s, err)
	}
}

func TestToleranceOverAnHourNeedsItsWord(t *testing.T) {
	c := Config{Secrets: secrets(textSecret), Tolerance: ptr(2 * time.Hour), AllowToleranceOverAnHour: true}
	s := signedStripe(t, c, `{"id":"evt_1"}`)
	if _, err := s(suiteNow.Add(2 * time.Hour)); err != nil {
		t.Errorf("refused at the edge: %v", err)
	}
	if _, err := s(suiteNow.Add(2*time.Hour + time.Second)); err == nil {
		t.Error("accepted past the edge")
	}
}

// signedStripe verifies one body, signed at suiteNow, received at a time.
func signedStripe(t *testing.T, c Config, body string) func(time.Time) (ichido.Proof, error) {
	t.Helper()
	source, err := New("stripe", c)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Sign("stripe", SignConfig{Secret: c.Secrets[len(c.Secrets)-1].Value, Time: suiteNow}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return func(at time.Time) (ichido.Proof, error) {
		return source.Provider.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte(body), ReceivedAt: at})
	}
}

// While one secret replaces another both verify, and a retired one stops at
// its time.
func TestSecretsHaveTheirTime(t *testing.T) {
	old := Secret{Value: "old-k3y-for-tests-only-0123456789", NotAfter: suiteNow.Add(10 * time.Second)}
	next := Secret{Value: textSecret, NotBefore: suiteNow.Add(-10 * time.Second)}
	byNext := signedStripe(t, Config{Secrets: []Secret{old, next}}, `{"id":"evt_1"}`)
	byOld := signedStripe(t, Config{Secrets: []Secret{next, old}}, `{"id":"evt_1"}`)
	if p, err := byNext(suiteNow); err != nil || p.Secret != 1 {
		t.Errorf("the new secret: %v, index %d", err, p.Secret)
	}
	if _, err := byNext(suiteNow.Add(-11 * time.Second)); err == nil {
		t.Error("the new secret verified before its time")
	}
	if p, err := byOld(suiteNow.Add(10 * time.Second)); err != nil || p.Secret != 1 {
		t.Errorf("the old secret in the overlap: %v, index %d", err, p.Secret)
	}
	if _, err := byOld(suiteNow.Add(11 * time.Second)); err == nil {
		t.Error("the old secret verified after its time")
	}
	alone := signedStripe(t, Config{Secrets: []Secret{old}}, `{"id":"evt_1"}`)
	_, err := alone(suiteNow.Add(11 * time.Second))
	var refused *ichido.Error
	if !errors.As(err, &refused) || refused.Cause != "secret_not_live" {
		t.Errorf("got %v", err)
	}
}

// The key of an event does not change when its secret is replaced.
func TestKeyDoesNotDependOnTheSecret(t *testing.T) {
	first := signedStripe(t, Config{Secrets: secrets(textSecret)}, `{"id":"evt_1"}`)
	second := signedStripe(t, Config{Secrets: secrets("second-k3y-for-tests-only-0123456789")}, `{"id":"evt_1"}`)
	a, err1 := first(suiteNow)
	b, err2 := second(suiteNow)
	if err1 != nil || err2 != nil || a.Key != b.Key || a.Fingerprint != b.Fingerprint {
		t.Errorf("%+v and %+v, %v %v", a, b, err1, err2)
	}
}

// A public value that is a part of what is signed is asked for by name, and
// not taken as empty.
func TestARequiredSettingIsAskedFor(t *testing.T) {
	f, err := parseProfile([]byte("id: x\nsettings: [{name: public_url, required: true, about: \"the URL\"}]\nverify: [{kind: mac, alg: hmac-sha256, msg: \"{config:public_url}{body}\", sig: {from: \"header:X-S\", encoding: hex}}]\nevents: {key: body}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSource(f, Config{Secrets: secrets(textSecret)}); err == nil || !strings.Contains(err.Error(), "settings.public_url is missing") {
		t.Errorf("got %v", err)
	}
	if _, err := newSource(f, Config{Secrets: secrets(textSecret), Settings: map[string]string{"public_url": "https://a.example/in"}}); err != nil {
		t.Error(err)
	}
}

// A proof outside the headers is put where the sender puts it, and Sign, which
// returns headers, says that it cannot.
func TestSignRequestPutsTheProofInItsPlace(t *testing.T) {
	for _, tt := range []struct{ from, body, query string }{
		{"query:token", `{}`, "a=b"},
		{"json:token", `{"n":1,"token":""}`, ""},
	} {
		f, err := parseProfile([]byte("id: x\nverify: [{kind: token, from: \"" + tt.from + "\"}]\nevents: {key: body}\n"))
		if err != nil {
			t.Fatal(err)
		}
		source, err := newSource(f, Config{Secrets: secrets(textSecret)})
		if err != nil {
			t.Fatal(err)
		}
		c := SignConfig{Secret: textSecret}
		d := &ichido.Delivery{Body: []byte(tt.body), RawQuery: tt.query, ReceivedAt: suiteNow}
		if err := f.signRequest(&c, d, func(string) string { return "" }); err != nil {
			t.Fatal(err)
		}
		if _, err := source.Provider.Verify(d); err != nil {
			t.Errorf("%s: %v", tt.from, err)
		}
		if _, err := f.sign(&c, []byte(tt.body), func(string) string { return "" }); err == nil {
			t.Errorf("%s: headers alone were returned", tt.from)
		}
		if err := f.signRequest(&c, &ichido.Delivery{Body: []byte(`{"token":1}`)}, func(string) string { return "" }); (err == nil) != (tt.from == "query:token") {
			t.Errorf("%s: %v", tt.from, err)
		}
	}
}
