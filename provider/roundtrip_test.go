package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"

	"ichido.dev/ichido"
)

// pemPair returns a private and a public key as an operator would have them.
func pemPair(t testing.TB, private any, public any) (string, string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
}

// What Sign makes verifies, and stops verifying when the body changes, for
// every form that the language has.
func TestSignedDeliveriesVerify(t *testing.T) {
	rsaPrivate, rsaPublic := pemPair(t, suiteRSA(), suiteRSA().Public())
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecPrivate, ecPublic := pemPair(t, ecKey, ecKey.Public())
	edPrivate, edPublic := pemPair(t, suiteEd, suiteEd.Public())
	mac := `kind: mac, alg: hmac-sha256, `
	tests := []struct {
		name, verify, private, public string
		bound                         bool
	}{
		{"list", mac + `sig: {from: "header:X-S", grammar: list, sep: ",", strip_prefix: "v1=", encoding: hex}`, textSecret, textSecret, true},
		{"positional", mac + `msg: "{ts}.{body}", ts: {from: "sig:0", unit: ms}, sig: {from: "header:X-S", grammar: positional, sep: ",", encoding: hex}`, textSecret, textSecret, true},
		{"kv", mac + `msg: "{body}|{ts}", ts: {from: "sig:t", unit: rfc3339}, sig: {from: "header:X-S", grammar: kv, sep: ";", keys: [h], encoding: base64}`, textSecret, textSecret, true},
		{"tagged", mac + `msg: "{ts}{body}", ts: {from: "header:X-T", unit: http-date}, sig: {from: "header:X-S", grammar: tagged, sep: " ", assign: ",", keys: [v9], encoding: base64url}`, textSecret, textSecret, true},
		{"iso time", mac + `msg: "{ts}:{body}", ts: {from: "header:X-T", unit: iso-utc}, sig: {from: "header:X-S", encoding: base64-of-hex}`, textSecret, textSecret, true},
		{"digest of the body in hexadecimal", mac + `msg: "{ts}.{body|sha256hex}", ts: {from: "header:X-T", unit: s}, sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"digest of the body as bytes", mac + `msg: "{body|sha256raw}", sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"digest of the body in base64", mac + `msg: "{body|sha512b64}|", sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"the body as a JSON text", mac + `msg: "{{{body|jsonstr}}", sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"doubled braces", mac + `msg: "[[{{{body}", sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"hmac-md5", `kind: mac, alg: hmac-md5, sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"hmac-sha1", `kind: mac, alg: hmac-sha1, sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"hmac-sha384", `kind: mac, alg: hmac-sha384, sig: {from: "header:X-S", encoding: base64}`, textSecret, textSecret, true},
		{"hmac-sha512", `kind: mac, alg: hmac-sha512, sig: {from: "header:X-S", encoding: base64}`, textSecret, textSecret, true},
		{"key suffix", mac + `key: {suffix: "&"}, sig: {from: "header:X-S", encoding: hex}`, textSecret, textSecret, true},
		{"hex key", mac + `key: {decode: hex}, sig: {from: "header:X-S", encoding: hex}`, strings.Repeat("0f", 20), strings.Repeat("0f", 20), true},
		{"ecdsa", `kind: sig, alg: ecdsa-p256-sha256, sig: {from: "header:X-S", encoding: base64}`, ecPrivate, ecPublic, true},
		{"rsa-pkcs1-sha512", `kind: sig, alg: rsa-pkcs1-sha512, sig: {from: "header:X-S", encoding: base64}`, rsaPrivate, rsaPublic, true},
		{"rsa-pss-sha256", `kind: sig, alg: rsa-pss-sha256, sig: {from: "header:X-S", encoding: base64}`, rsaPrivate, rsaPublic, true},
		{"rsa-pss-sha512", `kind: sig, alg: rsa-pss-sha512, sig: {from: "header:X-S", encoding: base64url}`, rsaPrivate, rsaPublic, true},
		{"ed25519 in PEM", `kind: sig, alg: ed25519, key: {decode: base64-spki}, sig: {from: "header:X-S", encoding: hex}`, edPrivate, edPublic, true},
		{"token", `kind: token, from: "header:Authorization", strip_prefix: "Bearer "`, textSecret, textSecret, false},
		{"basic", `kind: token, from: basic`, "user:" + textSecret, "user:" + textSecret, false},
		{"HS256", `kind: jwt, from: "header:Authorization", strip_prefix: "Bearer ", algs: [HS256], claims: {iss: me}`, textSecret, textSecret, false},
		{"HS256 with a short secret", `kind: jwt, from: "header:X-J", algs: [HS256], claims: {iss: me}`, "k3y-of-20-bytes-long", "k3y-of-20-bytes-long", false},
		{"HS512", `kind: jwt, from: "header:X-J", algs: [HS512]`, textSecret, textSecret, false},
		{"RS256", `kind: jwt, from: "header:X-J", algs: [RS256]`, rsaPrivate, rsaPublic, false},
		{"ES256", `kind: jwt, from: "header:X-J", algs: [ES256]`, ecPrivate, ecPublic, false},
		{"EdDSA", `kind: jwt, from: "header:X-J", algs: [EdDSA]`, edPrivate, edPublic, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := "body"
			if strings.Contains(tt.verify, "kind: jwt") {
				key = "signed"
			}
			f, err := parseProfile([]byte("id: x\nverify: [{" + tt.verify + "}]\nevents: {key: " + key + "}\n"))
			if err != nil {
				t.Fatal(err)
			}
			source, err := newSource(f, Config{Secrets: []Secret{{Value: tt.public}}})
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(`{"n":1}`)
			c := SignConfig{Secret: tt.private, Time: suiteNow}
			h, err := f.sign(&c, body, func(unit string) string { return formatTime(suiteNow, unit) })
			if err != nil {
				t.Fatal(err)
			}
			d := &ichido.Delivery{Method: http.MethodPost, Header: h, Body: body, ReceivedAt: suiteNow}
			p, err := source.Provider.Verify(d)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if bound := p.Strength == ichido.Verified; bound != tt.bound {
				t.Errorf("strength is %s", p.Strength)
			}
			d.Body = []byte(`{"n":2}`)
			if _, err := source.Provider.Verify(d); (err != nil) != tt.bound {
				t.Errorf("with another body: %v", err)
			}
		})
	}
}

func TestSignedSamplesAreEvents(t *testing.T) {
	for _, s := range suites(t) {
		f, err := lookup(s.profile)
		if err != nil {
			t.Fatal(err)
		}
		source, err := newSource(f, s.config(t))
		if err != nil {
			t.Fatal(err)
		}
		body, eventType := f.Sample("sample-1", suiteNow)
		c := s.signConfig()
		c.Type = eventType
		h, err := Sign(s.profile, c, body)
		if err != nil {
			t.Errorf("%s: %v", s.profile, err)
			continue
		}
		d := &ichido.Delivery{Method: http.MethodPost, Header: h, Body: body, ReceivedAt: suiteNow}
		p, err := source.Provider.Verify(d)
		if err != nil || p.Key == "" || p.Unreadable+p.Ignored+p.Denied != "" {
			t.Errorf("%s %s: %v %+v", s.profile, s.variant, err, p)
			continue
		}
		if want, _, _ := strings.Cut(eventType, "."); p.Type != eventType && (s.profile != "github" || p.Type != want) {
			t.Errorf("%s: type is %q, want %q", s.profile, p.Type, eventType)
		}
		if _, err := source.Provider.(ichido.Inspector).Inspect(p.Type, body); err != nil {
			t.Errorf("%s: the sample does not pass inspection: %v", s.profile, err)
		}
	}
}

func TestSignRefusesWhatItCannotSign(t *testing.T) {
	tests := []struct {
		name, profile string
		c             SignConfig
		want          string
	}{
		{"unknown profile", "nope", SignConfig{Secret: textSecret}, "unknown"},
		{"unknown variant", "github", SignConfig{Secret: textSecret, Variant: "md5"}, "no variant"},
		{"no id", "openai", SignConfig{Secret: textSecret}, "id"},
		{"id with a dot", "openai", SignConfig{Secret: textSecret, ID: "a.b"}, "id"},
		{"empty secret", "stripe", SignConfig{}, "nothing"},
		{"empty token", "shared-secret", SignConfig{}, "empty"},
		{"no private key", "discord", SignConfig{Secret: "x"}, "private key"},
		{"no PEM", "gemini", SignConfig{Secret: "x", Variant: "dynamic"}, "private key"},
		{"unknown setting", "stripe", SignConfig{Secret: textSecret, Settings: map[string]string{"x": "y"}}, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Time = suiteNow
			if _, err := Sign(tt.profile, tt.c, []byte("{}")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}
