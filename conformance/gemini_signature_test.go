package conformance

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

const (
	geminiSecret   = "whsec_dGhpcyBpcyBhIG1hZGUtdXAgc2VjcmV0IG9mIGdlbWluaQ=="
	geminiAudience = "https://receiver.example/hooks"
)

// geminiKeys are the keys that a sender publishes, and the private halves.
type geminiKeys struct {
	set      []byte // JWKS
	ed25519  string // private, as provider.Sign takes it
	rsa      string
	rsaOwner *rsa.PrivateKey
}

func newGeminiKeys(t *testing.T) *geminiKeys {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(owner)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "OKP", "crv": "Ed25519", "kid": "ed-1", "use": "sig", "x": text(public)},
		{"kty": "RSA", "alg": "RS256", "kid": "rsa-1", "use": "sig", "n": text(owner.N.Bytes()), "e": text(big.NewInt(int64(owner.E)).Bytes())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &geminiKeys{set, hex.EncodeToString(private.Seed()), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), owner}
}

// sign signs as a variant does.
func (k *geminiKeys) sign(t *testing.T, variant, id string, at time.Time, body string) http.Header {
	t.Helper()
	c := provider.SignConfig{Variant: variant, ID: id, Time: at, Secret: geminiSecret}
	switch variant {
	case "v1a":
		c.Secret = k.ed25519
	case "dynamic":
		c.Secret, c.KeyID, c.Settings = k.rsa, "rsa-1", map[string]string{"audience": geminiAudience}
	}
	return signed(t, "gemini", c, body)
}

func geminiConfig(k *geminiKeys) provider.Config {
	return provider.Config{
		Secrets: secrets(geminiSecret), KeySet: &provider.KeySet{JSON: k.set}, Settings: map[string]string{"audience": geminiAudience},
	}
}

func serveGemini(t *testing.T, c provider.Config) (string, *testStore) {
	t.Helper()
	s := openMemory()
	src := newSource(t, "gemini", c)
	src.Keep = true
	return serve(t, newInbox(t, s, src)), s
}

const batchSucceeded = `{"type":"batch.succeeded","version":"v1","data":{"id":"batches/b1"}}`

func testGeminiSignatures(t *testing.T) {
	k, other := newGeminiKeys(t), newGeminiKeys(t)
	url, s := serveGemini(t, geminiConfig(k))
	now := time.Now()
	for n, v := range []struct{ variant, strength string }{
		{"static", ichido.Verified}, {"v1a", ichido.Verified}, {"dynamic", ichido.Authenticated},
	} {
		id := "msg_" + v.variant
		h := k.sign(t, v.variant, id, now, batchSucceeded)
		a := post(t, url, h, batchSucceeded)
		a.is(t, http.StatusOK, "")
		if !strings.Contains(a.body, `"duplicate":false`) {
			t.Errorf("%s is answered %s", v.variant, a.body)
		}
		if a := post(t, url, h, batchSucceeded); !strings.Contains(a.body, `"duplicate":true`) {
			t.Errorf("the copy of %s is answered %s", v.variant, a.body)
		}
		r := s.list(t, "gemini")[n]
		if r.Scheme != v.variant || r.Strength != v.strength || r.Type != "batch.succeeded" || r.TypeSigned != (v.variant != "dynamic") {
			t.Errorf("%s is stored as %s, %s, type %s (signed: %t)", v.variant, r.Scheme, r.Strength, r.Type, r.TypeSigned)
		}
		if v.variant != "dynamic" && r.Key != id {
			t.Errorf("%s has key %s, want the signed id", v.variant, r.Key)
		}

		// Each is refused when it is stale, by another key, or of another body
		// where the signature covers it.
		post(t, url, k.sign(t, v.variant, "msg_old", now.Add(-time.Hour), batchSucceeded), batchSucceeded).is(t, 401, ichido.CodeSignature)
		post(t, url, k.sign(t, v.variant, "msg_early", now.Add(time.Hour), batchSucceeded), batchSucceeded).is(t, 401, ichido.CodeSignature)
		if v.variant != "dynamic" {
			post(t, url, h, strings.Replace(batchSucceeded, "b1", "b2", 1)).is(t, 401, ichido.CodeSignature)
		}
		if v.variant != "static" {
			post(t, url, other.sign(t, v.variant, "msg_other", now, batchSucceeded), batchSucceeded).is(t, 401, ichido.CodeSignature)
		}
	}
	if n := len(s.list(t, "gemini")); n != 3 {
		t.Errorf("%d events are stored, want 3", n)
	}
	t.Run("by the shape of the header", func(t *testing.T) { testGeminiShapes(t, k, other) })
	t.Run("only with its own key", func(t *testing.T) { testGeminiVariantsNeedTheirKeys(t, k) })
}

// testGeminiShapes sends signatures of one shape under another.
func testGeminiShapes(t *testing.T, k, other *geminiKeys) {
	url, _ := serveGemini(t, geminiConfig(k))
	now := time.Now()
	const name = "Webhook-Signature"
	with := func(id, signature string) http.Header {
		h := k.sign(t, "static", id, now, batchSucceeded)
		h.Set(name, signature)
		return h
	}
	static := k.sign(t, "static", "msg_1", now, batchSucceeded).Get(name)
	edwards := k.sign(t, "v1a", "msg_1", now, batchSucceeded).Get(name)
	token := k.sign(t, "dynamic", "msg_1", now, batchSucceeded).Get(name)
	forged := other.sign(t, "v1a", "msg_1", now, batchSucceeded).Get(name)
	for what, signature := range map[string]string{
		"an HMAC called v1a":             strings.Replace(static, "v1,", "v1a,", 1),
		"an Ed25519 signature called v1": strings.Replace(edwards, "v1a,", "v1,", 1),
		"a token called v1":              "v1," + token,
		"a token cut short":              token[:strings.LastIndexByte(token, '.')],
		"a token without a signature":    token[:strings.LastIndexByte(token, '.')+1],
		"a signature without a version":  strings.TrimPrefix(static, "v1,"),
		"a version that nobody knows":    strings.Replace(static, "v1,", "v2,", 1),
		"two forged ones":                forged + " v1,AAAA",
		"nothing":                        "",
	} {
		if a := post(t, url, with("msg_1", signature), batchSucceeded); a.status != http.StatusUnauthorized || a.code != ichido.CodeSignature {
			t.Errorf("%s is answered %d %s", what, a.status, a.body)
		}
	}
	// A token signed with the public key as if it were a shared secret, and
	// one that is not signed at all.
	text := base64.RawURLEncoding.EncodeToString
	claims := strings.Split(token, ".")[1]
	for _, alg := range []string{"none", "HS256"} {
		head := text([]byte(`{"alg":"` + alg + `","kid":"rsa-1","typ":"JWT"}`))
		post(t, url, with("msg_1", head+"."+claims+"."+text([]byte("not a signature"))), batchSucceeded).is(t, 401, ichido.CodeSignature)
	}
	// While keys change, several signatures are listed, and one is enough.
	post(t, url, with("msg_1", "v1,"+strings.Repeat("A", 43)+"= "+static), batchSucceeded).is(t, http.StatusOK, "")
}

func testGeminiVariantsNeedTheirKeys(t *testing.T, k *geminiKeys) {
	now := time.Now()
	for _, c := range []struct {
		what     string
		config   func(*provider.Config)
		accepted string
	}{
		{"the secret alone", func(c *provider.Config) { c.KeySet, c.Settings = nil, nil }, "static"},
		{"the key set without an audience", func(c *provider.Config) { c.Secrets, c.Settings = nil, nil }, "v1a"},
		{"the key set with an audience", func(c *provider.Config) { c.Secrets = nil }, "v1a dynamic"},
		{"another audience", func(c *provider.Config) { c.Settings = map[string]string{"audience": "https://other.example"} }, "static v1a"},
	} {
		config := geminiConfig(k)
		c.config(&config)
		url, _ := serveGemini(t, config)
		for _, variant := range []string{"static", "v1a", "dynamic"} {
			want := http.StatusUnauthorized
			if strings.Contains(" "+c.accepted+" ", " "+variant+" ") {
				want = http.StatusOK
			}
			if a := post(t, url, k.sign(t, variant, "msg_1", now, batchSucceeded), batchSucceeded); a.status != want {
				t.Errorf("%s: %s is answered %d %s, want %d", c.what, variant, a.status, a.body, want)
			}
		}
	}
	if _, err := provider.New("gemini", provider.Config{}); err == nil {
		t.Error("a source without secret and key set can be made")
	}
}
