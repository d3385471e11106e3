package provider

import (
	"net/http"
	"strings"
	"testing"

	"ichido.dev/ichido"
)

// A token that is bound to the body and the URL is good for them and no other.
func TestATokenIsGoodForItsBodyAndURLOnly(t *testing.T) {
	f, err := parseProfile([]byte(`id: x
settings: [{name: public_url, required: true, about: "the URL"}]
verify: [{kind: jwt, from: "header:X-J", algs: [HS256], body_hash: {claim: b, encoding: hex, empty_ok: true}, url_hash: {claim: u, encoding: hex}}]
events: {key: body}
`))
	if err != nil {
		t.Fatal(err)
	}
	receiver := func(url string) ichido.Provider {
		source, err := newSource(f, Config{Secrets: secrets(textSecret), Settings: map[string]string{"public_url": url}})
		if err != nil {
			t.Fatal(err)
		}
		return source.Provider
	}
	const url = "https://a.example/in"
	sign := func(body string) *ichido.Delivery {
		d := &ichido.Delivery{Method: http.MethodPost, Body: []byte(body), ReceivedAt: suiteNow}
		c := SignConfig{Secret: textSecret, Time: suiteNow, Settings: map[string]string{"public_url": url}}
		if err := f.signRequest(&c, d, func(string) string { return "" }); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := sign(`{"n":1}`)
	if p, err := receiver(url).Verify(d); err != nil || p.Strength != ichido.Verified {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, other := range []string{url + "/", "http://a.example/in", url + "?a=b"} {
		if _, err := receiver(other).Verify(d); err != errURLHash {
			t.Errorf("at %s: %v", other, err)
		}
	}
	d.Body = nil // the token has a hash, which is not of this body
	if _, err := receiver(url).Verify(d); err != errBodyHash {
		t.Errorf("without its body: %v", err)
	}
}

func TestATokenMayHoldTheBody(t *testing.T) {
	f, err := parseProfile([]byte("id: x\nverify: [{kind: jwt, from: \"header:X-J\", algs: [HS256], body_claim: data}]\nevents: {id: json:id}\n"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := newSource(f, Config{Secrets: secrets(textSecret)})
	if err != nil {
		t.Fatal(err)
	}
	d := &ichido.Delivery{Method: http.MethodPost, Body: []byte("{\"id\":\"é\\n\"}"), ReceivedAt: suiteNow}
	if err := f.signRequest(&SignConfig{Secret: textSecret, Time: suiteNow}, d, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if p, err := source.Provider.Verify(d); err != nil || p.Strength != ichido.Verified {
		t.Errorf("%+v, %v", p, err)
	}
	for _, body := range []string{"", `{"id":"x"}`, string(d.Body) + " ", strings.TrimSuffix(string(d.Body), "}")} {
		d.Body = []byte(body)
		if _, err := source.Provider.Verify(d); err != errBodyHash {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestAHashOfTheURLNeedsTheURL(t *testing.T) {
	_, err := parseProfile([]byte("id: x\nverify: [{kind: jwt, from: \"header:X-J\", algs: [HS256], url_hash: {claim: u, encoding: hex}}]\nevents: {key: signed}\n"))
	if err == nil || !strings.Contains(err.Error(), "settings.public_url") {
		t.Errorf("got %v", err)
	}
}
