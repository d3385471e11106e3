package provider

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"ichido.dev/ichido"
	"ichido.dev/ichido/provider/providertest"
)

const (
	textSecret  = "k3y-for-tests-only-0123456789abcdef"
	whsecSecret = "whsec_Ap5pHTr383oOG2PMO/SgAbA2s6O9bn44qEarY5WPVpI="
)

var (
	suiteNow  = time.Unix(1767225600, 0)
	suiteSeed = strings.Repeat("42", ed25519.SeedSize)
	suiteEd   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{0x42}, ed25519.SeedSize))
	suiteRSA  = sync.OnceValue(func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func suitePEM(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(suiteRSA())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// suiteKeySet is a key set with three Ed25519 keys, of which the second is
// ours, and our RSA key.
func suiteKeySet(t testing.TB) []byte {
	t.Helper()
	other := func(b byte) ed25519.PublicKey {
		return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, 32)).Public().(ed25519.PublicKey)
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: other(1), KeyID: "ed-1", Algorithm: "EdDSA", Use: "sig"},
		{Key: suiteEd.Public(), KeyID: "ed-2", Algorithm: "EdDSA", Use: "sig"},
		{Key: other(3), KeyID: "ed-3", Algorithm: "EdDSA", Use: "sig"},
		{Key: suiteRSA().Public(), KeyID: "rsa-1", Algorithm: "RS256", Use: "sig"},
	}}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// suite is one variant of a profile under the suite for providers.
type suite struct {
	profile string
	variant string
	secret  string // of the verifier; "" for the key set
	private string // of the signer; the secret by default
	body    string // the profile's sample by default
	header  string
	after   string // what stands before the signature in the header, from the right
	enc     string
	signed  []string
	other   []string          // unsigned headers
	rename  map[string]string // headers of another family
	extra   []Secret
	token   http.Header // signed once
}

func suites(t testing.TB) []suite {
	public := hex.EncodeToString(suiteEd.Public().(ed25519.PublicKey))
	whpk := "whpk_" + base64.StdEncoding.EncodeToString(suiteEd.Public().(ed25519.PublicKey))
	sw := []string{"Webhook-Id", "Webhook-Timestamp"}
	svixHeaders := []string{"Svix-Id", "Svix-Timestamp"}
	unbranded := map[string]string{"Svix-Id": "Webhook-Id", "Svix-Timestamp": "Webhook-Timestamp", "Svix-Signature": "Webhook-Signature"}
	linear := `{"action":"create","type":"Issue","data":{"id":"x"},"webhookTimestamp":1767225600000}`
	return []suite{
		{profile: "stripe", secret: textSecret, header: "Stripe-Signature", after: "v1=", enc: providertest.Hex},
		{profile: "github", secret: textSecret, body: `{"action":"opened"}`, header: "X-Hub-Signature-256", after: "=", enc: providertest.Hex, other: []string{"X-Github-Delivery", "X-Github-Event", "X-Hub-Signature"}},
		{profile: "github", variant: "sha1-legacy", secret: textSecret, body: `{"action":"opened"}`, header: "X-Hub-Signature", after: "=", enc: providertest.Hex, other: []string{"X-Github-Delivery", "X-Github-Event"}},
		{profile: "discord", secret: public, private: suiteSeed, body: `{"id":"123","type":2}`, header: "X-Signature-Ed25519", enc: providertest.Hex, signed: []string{"X-Signature-Timestamp"}},
		{profile: "slack", secret: textSecret, body: `{"event_id":"Ev1","type":"event_callback"}`, header: "X-Slack-Signature", after: "=", enc: providertest.Hex, signed: []string{"X-Slack-Request-Timestamp"}, other: []string{"X-Slack-Retry-Num"}},
		{profile: "standard-webhooks", secret: whsecSecret, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw},
		{profile: "standard-webhooks", variant: "asymmetric", secret: whpk, private: suiteSeed, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw},
		{profile: "standard-webhooks", variant: "asymmetric", secret: whpk, private: suiteSeed, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw, extra: []Secret{{Value: whsecSecret}}},
		{profile: "svix", secret: whsecSecret, header: "Svix-Signature", after: ",", enc: providertest.Base64, signed: svixHeaders},
		{profile: "svix", secret: whsecSecret, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw, rename: unbranded},
		{profile: "svix", variant: "asymmetric", secret: whpk, private: suiteSeed, header: "Svix-Signature", after: ",", enc: providertest.Base64, signed: svixHeaders},
		{profile: "gemini", variant: "static", secret: whsecSecret, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw},
		{profile: "gemini", variant: "v1a", private: suiteSeed, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw, extra: []Secret{{Value: whsecSecret}}},
		{profile: "gemini", variant: "dynamic", private: suitePEM(t), header: "Webhook-Signature", after: ".", enc: providertest.Base64URL, other: []string{"Webhook-Id", "Webhook-Timestamp"}},
		{profile: "shopify", secret: textSecret, header: "X-Shopify-Hmac-Sha256", enc: providertest.Base64, other: []string{"X-Shopify-Topic", "X-Shopify-Webhook-Id", "X-Shopify-Shop-Domain"}},
		{profile: "shopify", secret: textSecret, header: "Shopify-Hmac-Sha256", enc: providertest.Base64, other: []string{"Shopify-Topic"}, rename: map[string]string{"X-Shopify-Hmac-Sha256": "Shopify-Hmac-Sha256"}},
		{profile: "gitlab", variant: "signing-token", secret: whsecSecret, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw, other: []string{"X-Gitlab-Event", "X-Gitlab-Token", "Idempotency-Key"}},
		{profile: "gitlab", variant: "token", secret: textSecret, header: "X-Gitlab-Token", enc: providertest.Text, other: []string{"X-Gitlab-Event", "Idempotency-Key", "Webhook-Signature"}},
		{profile: "linear", secret: textSecret, body: linear, header: "Linear-Signature", enc: providertest.Hex, other: []string{"Linear-Delivery", "Linear-Event", "Linear-Timestamp"}},
		{profile: "openai", secret: whsecSecret, header: "Webhook-Signature", after: ",", enc: providertest.Base64, signed: sw},
		{profile: "hmac", secret: textSecret, body: `{"id":"evt-1","amount":500}`, header: "X-Signature", enc: providertest.Hex, signed: []string{"X-Timestamp"}},
		{profile: "shared-secret", secret: textSecret, header: "X-Hook-Secret", enc: providertest.Text},
	}
}

func (s *suite) signConfig() SignConfig {
	c := SignConfig{Variant: s.variant, Secret: s.private, ID: "msg_1", Type: "sample", Time: suiteNow, KeyID: "rsa-1"}
	if s.private == "" {
		c.Secret = s.secret
	}
	if s.variant == "dynamic" {
		c.Settings = map[string]string{"audience": "suite"}
	}
	return c
}

func (s *suite) config(t testing.TB) Config {
	c := Config{Secrets: s.extra}
	if s.secret != "" {
		c.Secrets = append([]Secret{{Value: s.secret}}, s.extra...)
	} else {
		c.KeySet = &KeySet{JSON: suiteKeySet(t)}
	}
	switch s.variant {
	case "sha1-legacy":
		c.Variants = []string{s.variant}
	case "dynamic":
		c.Settings = map[string]string{"audience": "suite"}
	}
	return c
}

func (s *suite) delivery(h http.Header, body []byte, at time.Time) *ichido.Delivery {
	for from, to := range s.rename {
		if values := h[from]; values != nil {
			h[to] = values
			delete(h, from)
		}
	}
	return &ichido.Delivery{Method: http.MethodPost, Path: "/", Header: h, Body: body, ReceivedAt: at}
}

// sign makes a genuine delivery, with text in place of its time where there
// is one.
func (s *suite) sign(t testing.TB, f *profileFile, body []byte, at time.Time, text *string) *ichido.Delivery {
	c := s.signConfig()
	c.Time = at
	if text != nil && s.profile == "linear" {
		body = []byte(strings.Replace(string(body), "1767225600000", jsonTime(*text), 1))
	}
	if s.token != nil { // RSA is slow, and the token is the same for every body
		return s.delivery(s.token.Clone(), body, at)
	}
	h, err := f.sign(&c, body, func(unit string) string {
		if text != nil {
			return *text
		}
		return formatTime(at, unit)
	})
	if err != nil {
		t.Errorf("sign: %v", err)
		return &ichido.Delivery{}
	}
	if s.variant == "dynamic" {
		s.token = h.Clone()
	}
	return s.delivery(h, body, at)
}

// jsonTime writes a text as a JSON number where it can stand as one: white
// space around a number means nothing there.
func jsonTime(text string) string {
	if strings.TrimSpace(text) != text {
		return fmt.Sprintf("%q", text)
	}
	return text
}

func keyedSum(newHash func() hash.Hash, key string, message []byte) []byte {
	mac := hmac.New(newHash, []byte(key))
	mac.Write(message)
	return mac.Sum(nil)
}

// signKey signs with a raw key, whatever it is.
func (s *suite) signKey(t testing.TB, f *profileFile, body []byte, key string) *ichido.Delivery {
	c := s.signConfig()
	scheme, err := f.sender(s.variant, map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	d := &ichido.Delivery{Header: http.Header{}, Body: body}
	message, fields, err := scheme.message(d, &c, func(unit string) string { return formatTime(suiteNow, unit) })
	if err != nil {
		t.Fatal(err)
	}
	d.Header.Set(scheme.from[0].name, scheme.grammar.format(keyedSum(macs[scheme.spec.Alg], key, message), fields))
	return s.delivery(d.Header, body, suiteNow)
}

func (s *suite) testCase(t testing.TB) providertest.Case {
	t.Helper()
	f, err := lookup(s.profile)
	if err != nil {
		t.Fatal(err)
	}
	source, err := newSource(f, s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := f.Sample("evt_1", suiteNow)
	if s.body != "" {
		body = []byte(s.body)
	}
	if len(body) > 200 { // the samples are longer than the suite wants
		body = []byte(`{"id":"evt_1","type":"sample","object_kind":"push"}`)
	}
	scheme, err := f.sender(s.variant, map[string]string{"header": "X-Hook-Secret"})
	if err != nil {
		t.Fatal(err)
	}
	c := providertest.Case{
		Provider: source.Provider, Now: suiteNow, Body: body, Strength: scheme.strength,
		Header: s.header, Encoding: s.enc, Signed: s.signed, Unsigned: s.other,
		Sign: func(body []byte, at time.Time) *ichido.Delivery { return s.sign(t, f, body, at, nil) },
	}
	if s.after != "" {
		c.Span = func(value string) (int, int) { return strings.LastIndex(value, s.after) + len(s.after), len(value) }
		if s.profile == "github" || s.profile == "slack" {
			c.Span = func(value string) (int, int) { return strings.Index(value, s.after) + len(s.after), len(value) }
		}
		if s.enc == providertest.Base64 {
			c.Span = func(value string) (int, int) { return strings.Index(value, s.after) + len(s.after), len(value) }
		}
	}
	if scheme.time != nil {
		c.Tolerance, c.Unit = scheme.tolerance, time.Second
		if scheme.unit == unitMillis {
			c.Unit = time.Millisecond
		}
		c.SignTime = func(body []byte, text string) *ichido.Delivery { return s.sign(t, f, body, suiteNow, &text) }
	}
	if s.variant == "dynamic" {
		c.Tolerance, c.Unit = 300*time.Second, time.Second
	}
	if scheme.kind == kindMAC {
		c.SignKey = func(key string) *ichido.Delivery { return s.signKey(t, f, body, key) }
	}
	return c
}

// The suites by hand say where each signature is without asking the profile.
func TestEveryVariantPassesTheSuite(t *testing.T) {
	for _, s := range suites(t) {
		name := s.profile + "/" + s.variant
		t.Run(name+"/"+s.header, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, s.testCase(t))
		})
	}
}
