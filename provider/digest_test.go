package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"ichido.dev/ichido"
)

// A plain digest of the secret and the body is weak, and with the secret
// behind the body it is the digest of the signed bytes and the secret: what
// identifies an event must not be that.
func TestAPlainDigestIsWeakAndItsKeyIsNoSignature(t *testing.T) {
	for _, msg := range []string{"{body}{key}", "{key}{body}", "{key}{method}{body}"} {
		p := sourceOf(t, "verify: [{kind: mac, alg: digest-sha256, msg: \""+msg+"\", sig: {from: \"header:X-S\", encoding: hex}}]\nevents: {key: signed}\n")
		body := `{"n":1}`
		sum := sha256.Sum256([]byte(strings.NewReplacer("{body}", body, "{key}", textSecret, "{method}", "POST").Replace(msg)))
		d := &ichido.Delivery{Method: http.MethodPost, Header: http.Header{"X-S": {hex.EncodeToString(sum[:])}}, Body: []byte(body), ReceivedAt: suiteNow}
		proof, err := p.Verify(d)
		if err != nil || proof.Strength != ichido.Weak {
			t.Fatalf("%s: %+v, %v", msg, proof, err)
		}
		if proof.Key == hex.EncodeToString(sum[:]) || proof.Fingerprint == sum {
			t.Errorf("%s: the event is known by what would sign it", msg)
		}
		d.Body = []byte(`{"n":2}`)
		if _, err := p.Verify(d); err == nil {
			t.Errorf("%s: verified with another body", msg)
		}
	}
}

const memberProfile = `verify: [{kind: mac, alg: hmac-sha256, weak_ok: true, msg: "{json:a.time}{json:a.token}", ts: {from: "json:a.time", unit: s}, sig: {from: "json:a.sig", encoding: hex}}]
events: {key: signed}
`

// Where members of the body are signed and the body is not, the rest of it
// can be changed by anyone: it is the same event, and no fact.
func TestSignedMembersAuthenticateAndNoMore(t *testing.T) {
	p := sourceOf(t, memberProfile)
	f, err := parseProfile([]byte("id: x\n" + memberProfile))
	if err != nil {
		t.Fatal(err)
	}
	d := &ichido.Delivery{Method: http.MethodPost, Body: []byte(`{"a":{"time":"1767225600","token":"t1","sig":""},"amount":1}`), ReceivedAt: suiteNow}
	if err := f.signRequest(&SignConfig{Secret: textSecret}, d, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	genuine := string(d.Body)
	first, err := p.Verify(d)
	if err != nil || first.Strength != ichido.Authenticated || first.Time != suiteNow {
		t.Fatalf("%+v, %v", first, err)
	}
	verify := func(old, new string) (ichido.Proof, error) {
		t.Helper()
		body := strings.Replace(genuine, old, new, 1)
		if body == genuine {
			t.Fatal("the change changes nothing")
		}
		return p.Verify(&ichido.Delivery{Method: http.MethodPost, Header: http.Header{}, Body: []byte(body), ReceivedAt: suiteNow})
	}
	if again, err := verify(`"amount":1`, `"amount":2`); err != nil || again.Key != first.Key || again.Fingerprint != first.Fingerprint {
		t.Errorf("another amount: %+v, %v", again, err)
	}
	for _, change := range [][2]string{
		{`"t1"`, `"t2"`},
		{`"1767225600"`, `"1767225601"`},
		{`"t1"`, `1`},
		{`"token"`, `"Token"`},
		{`"t1"`, `"t1","token":"t1"`},
		{`"1767225600","token":"t1"`, `"176722560","token":"0t1"`}, // the same signed bytes, cut elsewhere: another time
	} {
		if _, err := verify(change[0], change[1]); err == nil {
			t.Errorf("%s for %s was accepted", change[1], change[0])
		}
	}
}

func TestLoaderRefusesDigestsAndMembersOutOfPlace(t *testing.T) {
	mac := func(rest string) string {
		return "id: x\nverify: [{kind: mac, " + rest + ", sig: {from: \"header:X-S\", encoding: hex}}]\nevents: {key: signed}\n"
	}
	for _, tt := range []struct{ name, profile, want string }{
		{"a digest without its key", mac(`alg: digest-sha256, msg: "{body}"`), "needs {key}"},
		{"a digest with the key inside", mac(`alg: digest-sha256, msg: "{body}{key}x"`), "needs {key}"},
		{"a digest with two keys", mac(`alg: digest-sha256, msg: "{key}{body}{key}"`), "needs {key}"},
		{"a MAC with its key in the message", mac(`alg: hmac-sha256, msg: "{body}{key}"`), "plain digests"},
		{"a member beside the body", mac(`alg: hmac-sha256, weak_ok: true, msg: "{json:a}{body}"`), "cannot be signed"},
		{"a member without weak_ok", mac(`alg: hmac-sha256, msg: "{json:a}"`), "cannot be signed"},
		{"an id that touches another member", strings.Replace(mac(`alg: hmac-sha256, weak_ok: true, msg: "{json:a}{json:b}"`), "key: signed", "id: json:a", 1), "touches"},
		{"an id that is not among the members", strings.Replace(mac(`alg: hmac-sha256, weak_ok: true, msg: "{json:a}"`), "key: signed", "id: json:b", 1), "not covered"},
		{"a key of a weak scheme on the body", strings.Replace(mac(`alg: digest-sha256, msg: "{body}{key}"`), "key: signed", "key: body", 1), "use \"signed\""},
		{"an unending token that binds nothing", "id: x\nverify: [{kind: jwt, from: \"header:X-J\", algs: [HS256], unending: true}]\nevents: {key: signed}\n", "unending"},
	} {
		if _, err := parseProfile([]byte(tt.profile)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error about %q", tt.name, err, tt.want)
		}
	}
}
