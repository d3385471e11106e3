package provider

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"ichido.dev/ichido"
)

// makeJWT signs claims with our RSA key, with more in its header.
func makeJWT(t testing.TB, alg jose.SignatureAlgorithm, key any, kid string, extra map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	options := &jose.SignerOptions{ExtraHeaders: extra}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(claims)
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func goodClaims() map[string]any {
	return map[string]any{"aud": "suite", "iat": suiteNow.Unix(), "exp": suiteNow.Add(time.Hour).Unix()}
}

func dynamicSource(t testing.TB, c Config) ichido.Provider {
	t.Helper()
	c.Settings = map[string]string{"audience": "suite"}
	source, err := New("gemini", c)
	if err != nil {
		t.Fatal(err)
	}
	return source.Provider
}

func verifyToken(p ichido.Provider, token string, at time.Time) error {
	h := http.Header{"Webhook-Signature": {token}, "Webhook-Timestamp": {formatTime(at, unitSeconds)}, "Webhook-Id": {"wh-1"}}
	_, err := p.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte("{}"), ReceivedAt: at})
	return err
}

func TestTokens(t *testing.T) {
	canary := new(atomic.Int64)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { canary.Add(1) }))
	defer evil.Close()
	key := suiteRSA()
	own := jose.JSONWebKey{Key: key.Public(), KeyID: "rsa-1"}
	with := func(change func(map[string]any)) map[string]any {
		c := goodClaims()
		change(c)
		return c
	}
	segment := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	right := makeJWT(t, jose.RS256, key, "rsa-1", nil, goodClaims())
	parts := strings.Split(right, ".")
	confused := func() string { // HS256 with the public key as the secret
		der, _ := json.Marshal(own)
		input := segment(`{"alg":"HS256","kid":"rsa-1"}`) + "." + parts[1]
		mac := hmac.New(sha256.New, der)
		mac.Write([]byte(input))
		return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}()
	tests := []struct{ name, token, cause string }{
		{"right", right, ""},
		{"aud in a list", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["aud"] = []string{"x", "suite"} })), ""},
		{"no aud", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { delete(c, "aud") })), "audience"},
		{"aud in another case", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["aud"] = "Suite" })), "audience"},
		{"aud is a number", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["aud"] = 1 })), "audience"},
		{"no exp", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { delete(c, "exp") })), "expired"},
		{"exp now", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["exp"] = suiteNow.Unix() })), "expired"},
		{"exp is text", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["exp"] = "2000000000" })), "signature_malformed"},
		{"exp is huge", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["exp"] = json.Number("1e400") })), "signature_malformed"},
		{"nbf ahead", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["nbf"] = suiteNow.Add(time.Hour).Unix() })), "not_yet_valid"},
		{"iat ahead", makeJWT(t, jose.RS256, key, "rsa-1", nil, with(func(c map[string]any) { c["iat"] = suiteNow.Add(time.Hour).Unix() })), "not_yet_valid"},
		{"unknown kid", makeJWT(t, jose.RS256, key, "rsa-2", nil, goodClaims()), "key_unknown"},
		{"no kid", makeJWT(t, jose.RS256, key, "", nil, goodClaims()), "key_unknown"},
		{"kid is a path", makeJWT(t, jose.RS256, key, "../../dev/null", nil, goodClaims()), "key_unknown"},
		{"kid of a key of another kind", makeJWT(t, jose.RS256, key, "ed-2", nil, goodClaims()), "key_unknown"},
		{"another algorithm of the same key", makeJWT(t, jose.RS512, key, "rsa-1", nil, goodClaims()), "algorithm"},
		{"PSS", makeJWT(t, jose.PS256, key, "rsa-1", nil, goodClaims()), "algorithm"},
		{"none", segment(`{"alg":"none","kid":"rsa-1"}`) + "." + parts[1] + ".", "signature_malformed"},
		{"none with a signature", segment(`{"alg":"none","kid":"rsa-1"}`) + "." + parts[1] + "." + parts[2], "algorithm"},
		{"nOnE", segment(`{"alg":"nOnE","kid":"rsa-1"}`) + "." + parts[1] + "." + parts[2], "algorithm"},
		{"HS256 with the public key", confused, "algorithm"},
		{"a list of algorithms", segment(`{"alg":["RS256","none"],"kid":"rsa-1"}`) + "." + parts[1] + "." + parts[2], "algorithm"},
		{"jku", makeJWT(t, jose.RS256, key, "rsa-9", map[jose.HeaderKey]any{"jku": evil.URL}, goodClaims()), "key_unknown"},
		{"x5u", makeJWT(t, jose.RS256, key, "rsa-9", map[jose.HeaderKey]any{"x5u": evil.URL}, goodClaims()), "key_unknown"},
		{"its own key", makeJWT(t, jose.RS256, key, "rsa-9", map[jose.HeaderKey]any{"jwk": own}, goodClaims()), ""},
		{"an unknown critical header", makeJWT(t, jose.RS256, key, "rsa-1", map[jose.HeaderKey]any{"crit": []string{"x"}, "x": 1}, goodClaims()), "signature_malformed"},
		{"unencoded payload", makeJWT(t, jose.RS256, key, "rsa-1", map[jose.HeaderKey]any{"b64": true, "crit": []string{"b64"}}, goodClaims()), "signature_malformed"},
		{"two parts", parts[0] + "." + parts[1], "signature_malformed"},
		{"four parts", right + ".x", "signature_malformed"},
		{"a million dots", strings.Repeat(".", 1<<20), "signature_malformed"},
		{"another payload", parts[0] + "." + segment(`{"aud":"suite","exp":9999999999}`) + "." + parts[2], "signature_mismatch"},
	}
	p := dynamicSource(t, Config{KeySet: &KeySet{JSON: suiteKeySet(t)}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := verifyToken(p, tt.token, suiteNow)
			var refused *ichido.Error
			switch {
			case tt.name == "its own key": // another id, and the key in the token: never used
				if !errors.As(err, &refused) || refused.Code != ichido.CodeSignature {
					t.Errorf("got %v", err)
				}
			case tt.cause == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.cause != "" && (!errors.As(err, &refused) || refused.Cause != tt.cause):
				t.Errorf("got %v, want cause %s", err, tt.cause)
			}
		})
	}
	if canary.Load() != 0 {
		t.Errorf("%d requests to a URL from a token", canary.Load())
	}
}

func TestTwoKeysOfOneIDAreNeither(t *testing.T) {
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(suiteKeySet(t), &set); err != nil {
		t.Fatal(err)
	}
	last := set.Keys[len(set.Keys)-1]
	set.Keys = append(set.Keys, last)
	data, _ := json.Marshal(set)
	p := dynamicSource(t, Config{KeySet: &KeySet{JSON: data}})
	if err := verifyToken(p, makeJWT(t, jose.RS256, suiteRSA(), "rsa-1", nil, goodClaims()), suiteNow); err != error(errKeyUnknown) {
		t.Errorf("got %v", err)
	}
}
