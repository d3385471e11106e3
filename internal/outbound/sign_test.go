package outbound

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func mustSigner(t *testing.T, secrets ...string) *Signer {
	t.Helper()
	s, err := NewSigner(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The vector of the Standard Webhooks reference libraries.
func TestSignatureIsThatOfTheReferenceLibraries(t *testing.T) {
	got := mustSigner(t, secretA).Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// independent computes a signature by the definition of HMAC (RFC 2104),
// without crypto/hmac.
func independent(secret, signed string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	var inner, outer [64]byte
	copy(inner[:], key)
	copy(outer[:], key)
	for i := range inner {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	first := sha256.Sum256(append(inner[:], signed...))
	second := sha256.Sum256(append(outer[:], first[:]...))
	return "v1," + base64.StdEncoding.EncodeToString(second[:])
}

func TestRotationSignsOncePerSecret(t *testing.T) {
	body := "\x00\xff{\"a\":1}"
	got := mustSigner(t, secretA, secretB).Sign("ev_1", 1700000000, []byte(body))
	signed := "ev_1.1700000000." + body
	if want := independent(secretA, signed) + " " + independent(secretB, signed); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAWeakOrBrokenSecretIsRefusedWithoutShowingIt(t *testing.T) {
	encode := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7)
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	for name, secret := range map[string]string{
		"empty":        "",
		"blank":        "   ",
		"prefix only":  "whsec_",
		"no prefix":    encode(32),
		"other prefix": "whsk_" + encode(32),
		"23 bytes":     "whsec_" + encode(23),
		"65 bytes":     "whsec_" + encode(65),
		"URL alphabet": "whsec_" + strings.Repeat("-_", 16),
		"no padding":   "whsec_" + strings.TrimRight(encode(32), "="),
		"spare bits":   "whsec_" + strings.Repeat("AbCd", 10) + "AbB=",
		"line end":     "whsec_" + encode(32) + "\n",
		"inner line":   "whsec_" + encode(32)[:20] + "\r\n" + encode(32)[20:],
		"space":        "whsec_ " + encode(32),
		"all zero":     "whsec_" + strings.Repeat("A", 32),
		"all one byte": "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32))),
	} {
		_, err := NewSigner(secretA, secret)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if rest := strings.TrimPrefix(strings.TrimSpace(secret), "whsec_"); len(rest) > 4 && strings.Contains(err.Error(), rest) {
			t.Errorf("%s: the error shows the secret", name)
		}
		if !strings.Contains(err.Error(), "signing secret 2") {
			t.Errorf("%s: the error does not say which secret: %v", name, err)
		}
	}
	for _, n := range []int{24, 32, 64} {
		if _, err := NewSigner("whsec_" + encode(n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := NewSigner(); err == nil {
		t.Error("no secret at all was accepted")
	}
}

func TestASignerPrintsNoKey(t *testing.T) {
	s := mustSigner(t, secretA)
	key := fmt.Sprint(s.keys[0][:4])
	holder := struct{ S *Signer }{s}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		text := fmt.Sprintf(format+" "+format, s, holder)
		if strings.Contains(text, strings.Trim(key, "[]")) || strings.Contains(text, "31f290f6") {
			t.Errorf("%s shows the key: %s", format, text)
		}
	}
}
