package provider

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"ichido.dev/ichido"
)

// vector is one delivery with what must become of it. The files beside the
// profiles hold them.
type vector struct {
	Name      string            `json:"name"`
	Challenge bool              `json:"challenge"` // a handshake
	Method    string            `json:"method"`    // POST when left out
	Variant   string            `json:"variant"`   // that must verify; "" for the first
	Secrets   []string          `json:"secrets"`
	JWKS      json.RawMessage   `json:"jwks"`
	Settings  map[string]string `json:"settings"`
	Headers   map[string]string `json:"headers"`
	URL       string            `json:"url"` // where the sender puts something into its query
	Body      string            `json:"body"`
	Base64    []byte            `json:"body_base64"`
	Now       int64             `json:"now"`
	Tolerance int               `json:"tolerance_s"`
	Weak      bool              `json:"weak_secret"` // New refuses such a secret, and the scheme is tried all the same
	Expect    string            `json:"expect"`      // ok or reject
	Reason    string            `json:"reason"`
	Origin    string            `json:"origin"`

	// What is checked besides, where it is there.
	Cause      string  `json:"cause"` // of a refusal
	Key        string  `json:"key"`
	Type       string  `json:"type"`
	Secret     *int    `json:"secret"` // index of the secret that verified
	Ignored    bool    `json:"ignored"`
	Unreadable bool    `json:"unreadable"`
	Inspect    string  `json:"inspect"` // the code that Inspect must answer
	Payload    *string `json:"payload"` // the JSON view that it must return
	Response   *struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	} `json:"response"` // of a handshake
}

// delivery makes a new delivery of the vector.
func (v *vector) delivery() *ichido.Delivery {
	h := http.Header{}
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	body := []byte(v.Body)
	if v.Base64 != nil {
		body = v.Base64
	}
	_, query, _ := strings.Cut(v.URL, "?")
	method := v.Method
	if method == "" {
		method = http.MethodPost
	}
	return &ichido.Delivery{Method: method, RawQuery: query, Header: h, Body: body, ReceivedAt: time.Unix(v.Now, 0)}
}

// config makes the configuration of the receiver. Published vectors have short
// secrets.
func (v *vector) config(f *profileFile) Config {
	c := Config{Settings: v.Settings, AllowShortSecret: true}
	for _, secret := range v.Secrets {
		c.Secrets = append(c.Secrets, Secret{Value: secret})
	}
	if v.JWKS != nil {
		c.KeySet = &KeySet{JSON: v.JWKS}
	}
	if v.Tolerance > 0 {
		tolerance := time.Duration(v.Tolerance) * time.Second
		c.Tolerance = &tolerance
	}
	for _, spec := range f.Verify {
		if spec.Variant == v.Variant && spec.Off {
			c.Variants = []string{v.Variant}
		}
	}
	return c
}

// source makes the receiver of the vector.
func (v *vector) source(t testing.TB, f *profileFile) ichido.Source {
	t.Helper()
	c := v.config(f)
	if !v.Weak {
		source, err := newSource(f, c)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	if _, err := newSource(f, c); err == nil {
		t.Error("a secret that anyone would try was taken")
	}
	given := c.Secrets
	c.Secrets = secrets(textSecret)
	source, err := newSource(f, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range source.Provider.(*engine).schemes {
		s.keys = nil
		for i, secret := range given {
			if err := s.add(secret, i, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	return source
}

func readVectors(t testing.TB, profile string) []vector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("profiles", profile+".vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatalf("%s: %v", profile, err)
	}
	return vectors
}

func TestVectors(t *testing.T) {
	accepted, rejected, found, official := 0, 0, 0, 0
	for _, name := range Names() {
		f, err := lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		vectors := readVectors(t, name)
		if len(vectors) < 5 {
			t.Errorf("%s has only %d vectors", name, len(vectors))
		}
		for _, v := range vectors {
			switch {
			case strings.HasPrefix(v.Origin, "found"):
				found++
			case strings.HasPrefix(v.Origin, "computed by the official"):
				official++
			}
			t.Run(name+"/"+v.Name, func(t *testing.T) {
				if v.Expect == "ok" {
					accepted++
				} else {
					rejected++
				}
				runVector(t, f, &v)
			})
		}
	}
	total := accepted + rejected
	t.Logf("%d profiles, %d vectors: %d to accept, %d to refuse; %d found in official material, %d computed by official libraries, %d computed from documented algorithms",
		len(Names()), total, accepted, rejected, found, official, total-found-official)
	if len(Names()) < 218 || total < 2170 || found < 130 {
		t.Errorf("profiles or vectors are missing")
	}
}

func runVector(t *testing.T, f *profileFile, v *vector) {
	source := v.source(t, f)
	if v.Challenge && v.Method != "" {
		checkProbe(t, source.Provider, v)
		return
	}
	p, err := source.Provider.Verify(v.delivery())
	if v.Expect == "reject" {
		checkRefusal(t, err, v.Cause)
		return
	}
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	if v.Challenge {
		checkChallenge(t, source.Provider, v)
		return
	}
	if c, ok := source.Provider.(ichido.Challenger); ok {
		w := httptest.NewRecorder()
		if c.Challenge(w, v.delivery(), false) || c.Challenge(w, v.delivery(), true) {
			t.Errorf("an event is answered as a handshake: %d %s", w.Code, w.Body)
		}
	}
	want := v.Variant
	if want == "" {
		want = f.Verify[0].Variant
	}
	if p.Scheme != want {
		t.Errorf("verified as %q, want %q", p.Scheme, want)
	}
	if v.Key != "" && p.Key != v.Key {
		t.Errorf("key is %q, want %q", p.Key, v.Key)
	}
	if v.Type != "" && p.Type != v.Type {
		t.Errorf("type is %q, want %q", p.Type, v.Type)
	}
	if v.Secret != nil && p.Secret != *v.Secret {
		t.Errorf("secret %d verified, want %d", p.Secret, *v.Secret)
	}
	if (p.Unreadable != "") != v.Unreadable || (p.Ignored != "") != v.Ignored {
		t.Errorf("unreadable %q, ignored %q; want %v, %v", p.Unreadable, p.Ignored, v.Unreadable, v.Ignored)
	}
	if (p.Key == "") != (v.Unreadable || v.Ignored) {
		t.Errorf("key is %q", p.Key)
	}
	checkInspect(t, source.Provider, v, p.Type)
}

// checkProbe checks a handshake that nobody signs. One that is no handshake is
// left to the answer 405.
func checkProbe(t *testing.T, p ichido.Provider, v *vector) {
	t.Helper()
	w := httptest.NewRecorder()
	if p.(ichido.Challenger).Challenge(w, v.delivery(), true) {
		t.Error("a handshake without a signature was answered as a verified one")
	}
	answered := p.(ichido.Challenger).Challenge(w, v.delivery(), false)
	if v.Response == nil {
		if answered {
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
		return
	}
	if !answered {
		t.Fatal("the handshake was not answered")
	}
	checkAnswer(t, w, v)
}

func checkRefusal(t *testing.T, err error, cause string) {
	t.Helper()
	var refused *ichido.Error
	if !errors.As(err, &refused) || refused.Code != ichido.CodeSignature {
		t.Fatalf("got %v, want a refusal with code %s", err, ichido.CodeSignature)
	}
	if cause != "" && refused.Cause != cause {
		t.Errorf("cause is %q, want %q", refused.Cause, cause)
	}
}

func checkChallenge(t *testing.T, p ichido.Provider, v *vector) {
	t.Helper()
	w := httptest.NewRecorder()
	if p.(ichido.Challenger).Challenge(w, v.delivery(), false) || w.Body.Len() > 0 {
		t.Error("the handshake was answered before it was verified")
	}
	if !p.(ichido.Challenger).Challenge(w, v.delivery(), true) {
		t.Fatal("the handshake was not answered")
	}
	if v.Response == nil {
		t.Fatal("the vector names no response")
	}
	checkAnswer(t, w, v)
}

func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, v *vector) {
	t.Helper()
	got := map[string]string{}
	for name := range v.Response.Headers {
		got[name] = w.Header().Get(name)
	}
	if w.Code != v.Response.Status || w.Body.String() != v.Response.Body || !cmp.Equal(got, v.Response.Headers) {
		t.Errorf("answered %d %v %q, want %+v", w.Code, got, w.Body, *v.Response)
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Error("the answer may be sniffed")
	}
}

func checkInspect(t *testing.T, p ichido.Provider, v *vector, eventType string) {
	t.Helper()
	if v.Inspect == "" && v.Payload == nil {
		return
	}
	payload, err := p.(ichido.Inspector).Inspect(eventType, v.delivery().Body)
	var refused *ichido.Error
	code := ""
	if errors.As(err, &refused) {
		code = refused.Code
	}
	if code != v.Inspect {
		t.Errorf("Inspect answered %v, want code %q", err, v.Inspect)
	}
	if v.Payload != nil && string(payload) != *v.Payload {
		t.Errorf("JSON view is %q, want %q", payload, *v.Payload)
	}
}

// A vector that is wrong must be seen: each accepted one is run again with a
// changed body, and each refused one is checked to name an expectation.
func TestVectorsCatchAChangedBody(t *testing.T) {
	changed := 0
	for _, name := range Names() {
		f, err := lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range readVectors(t, name) {
			if !slices.Contains([]string{"ok", "reject"}, v.Expect) {
				t.Errorf("%s/%s expects %q", name, v.Name, v.Expect)
			}
			if v.Expect != "ok" {
				continue
			}
			if v.Challenge && v.Method != "" {
				continue
			}
			source := v.source(t, f)
			d := v.delivery()
			p, err := source.Provider.Verify(d)
			if err != nil || p.Strength != ichido.Verified {
				continue
			}
			d.Body = append(slices.Clone(d.Body), '\n')
			if _, err := source.Provider.Verify(d); err == nil {
				t.Errorf("%s/%s: verified with another body", name, v.Name)
			}
			changed++
		}
	}
	if changed < 80 {
		t.Errorf("only %d vectors were changed", changed)
	}
}
