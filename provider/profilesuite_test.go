package provider

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider/providertest"
)

// sampledEvery is how many of the trials that go through every bit and byte
// are made for a profile that differs from another only in its names: one in
// so many. It is a prime, so that all bits of a byte have their turn. One
// profile of each family of schemes (the kind, the algorithm, the grammar, the
// encoding, the key, the message and the time) is tried in full. The engine
// has code for these, and for nothing else of a profile.
const sampledEvery = 37

var suiteEC = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// profileSuite is the suite of one variant, made from what its profile says:
// the signer and the verifier have the scheme in common, so that what is shown
// is that nothing else passes. That the scheme is the sender's is shown by the
// vectors.
type profileSuite struct {
	f        *profileFile
	v        *variantSpec
	s        *scheme // as the sender uses it
	rename   map[string]string
	settings map[string]string
	secret   string // of the verifier; "" for the key set
	private  string // of the signer
	every    int

	lock   sync.Mutex
	signed map[string]*ichido.Delivery // public-key signatures are slow, and made once
}

// profileSuites returns the suites of all variants: one, or one per family of
// header names.
func profileSuites(t testing.TB) []*profileSuite {
	var all []*profileSuite
	seen := map[string]bool{}
	for _, name := range Names() {
		f, err := lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Verify {
			v := &f.Verify[i]
			if v.Kind == kindNone {
				continue
			}
			p := &profileSuite{f: f, v: v, settings: map[string]string{}, signed: map[string]*ichido.Delivery{}, every: sampledEvery}
			for _, s := range f.Settings {
				if p.settings[s.Name] = s.Default; s.Default == "" {
					p.settings[s.Name] = "https://hooks.example.com/in"
				}
			}
			p.setKeys(t)
			schemes, err := v.compile(p.settings)
			if err != nil {
				t.Fatal(err)
			}
			if family := schemes[0].familyOfScheme(); !seen[family] {
				seen[family], p.every = true, 1
			}
			for n, s := range schemes {
				one := &profileSuite{f: f, v: v, s: schemes[0], settings: p.settings, secret: p.secret, private: p.private, every: p.every, signed: p.signed}
				one.rename = renamed(schemes[0], s)
				if n > 0 {
					one.signed = map[string]*ichido.Delivery{}
				}
				all = append(all, one)
			}
		}
	}
	return all
}

// familyOfScheme names what the engine distinguishes.
func (s *scheme) familyOfScheme() string {
	shape := func(t template) string {
		var b strings.Builder
		for _, p := range t {
			b.WriteString(p.kind + p.literal + "|")
		}
		return b.String()
	}
	at := ""
	if s.time != nil {
		at = s.time.kind + s.unit
	}
	g := s.grammar
	return strings.Join([]string{s.kind, s.spec.Alg, strings.Join(s.spec.Algs, ","), g.kind, g.encoding, s.from[0].kind, s.spec.Key.Decode, s.spec.Key.Source, shape(s.head), shape(s.tail), at}, " ")
}

// renamed maps the header names of one family to those of another.
func renamed(from, to *scheme) map[string]string {
	names := map[string]string{}
	add := func(x, y place) {
		if x.kind == inHeader && x.name != y.name {
			names[x.name] = y.name
		}
	}
	add(from.from[0], to.from[0])
	if from.time != nil {
		add(*from.time, *to.time)
	}
	for i, p := range from.head {
		if p.kind == inHeader {
			add(p.places[0], to.head[i].places[0])
		}
	}
	return names
}

// setKeys chooses keys of the form that the variant takes.
func (p *profileSuite) setKeys(t testing.TB) {
	raw := []byte(textSecret)[:32]
	p.secret = textSecret
	if len(p.v.From) > 0 && p.v.From[0] == inBasic {
		p.secret = "user:" + textSecret
	}
	switch p.v.Key.Decode {
	case decodeWhsec, decodeWhsecUTF8:
		p.secret = p.v.Key.StripPrefix + whsecSecret
	case decodeBase64Key:
		p.secret = base64.StdEncoding.EncodeToString(raw)
	case decodeHexKey:
		p.secret = hex.EncodeToString(raw)
	}
	if p.v.Key.Prefix != "" && !strings.HasPrefix(p.secret, p.v.Key.Prefix) {
		p.secret = p.v.Key.Prefix + p.secret
	}
	p.private = p.secret
	algorithm := p.v.Alg
	if p.v.Kind == kindJWT && !isHMAC(p.v.Algs[0]) {
		algorithm = p.v.Algs[0]
	}
	switch {
	case algorithm == "ed25519" || algorithm == "EdDSA":
		p.private = suiteSeed
		p.secret = publicText(t, p.v.Key.Decode, suiteEd, suiteEd.Public().(ed25519.PublicKey))
	case strings.HasPrefix(algorithm, "rsa") || strings.HasPrefix(algorithm, "RS"):
		p.private, p.secret = pemPair(t, suiteRSA(), suiteRSA().Public())
	case strings.HasPrefix(algorithm, "ecdsa") || strings.HasPrefix(algorithm, "ES"):
		p.private, p.secret = pemPair(t, suiteEC(), suiteEC().Public())
	}
	if p.v.Key.Source == sourceJWKS {
		p.secret = ""
	}
}

func publicText(t testing.TB, decode string, private ed25519.PrivateKey, public ed25519.PublicKey) string {
	switch decode {
	case decodeHexKey:
		return hex.EncodeToString(public)
	case decodeWhpk:
		return whpkPrefix + base64.StdEncoding.EncodeToString(public)
	case decodeSPKI:
		_, text := pemPair(t, private, public)
		return text
	}
	return base64.StdEncoding.EncodeToString(public)
}

func (p *profileSuite) signConfig() SignConfig {
	return SignConfig{Variant: p.v.Variant, Secret: p.private, ID: "msg_1", Type: "sample", Time: suiteNow, KeyID: "rsa-1", Settings: p.given()}
}

// given are the settings that have no default.
func (p *profileSuite) given() map[string]string {
	given := map[string]string{}
	for _, s := range p.f.Settings {
		if s.Default == "" {
			given[s.Name] = p.settings[s.Name]
		}
	}
	return given
}

func (p *profileSuite) config(t testing.TB) Config {
	c := Config{Settings: p.given(), Variants: []string{p.v.Variant}}
	if p.secret != "" {
		c.Secrets = []Secret{{Value: p.secret}}
	} else {
		c.KeySet = &KeySet{JSON: suiteKeySet(t)}
	}
	return c
}

// sign makes a genuine delivery, with text in place of its time where there
// is one.
func (p *profileSuite) sign(t testing.TB, body []byte, at time.Time, text *string) *ichido.Delivery {
	p.lock.Lock()
	defer p.lock.Unlock()
	timeText := func(unit string) string {
		if text != nil {
			return *text
		}
		return formatTime(at, unit)
	}
	id := string(body) + at.String()
	if text != nil {
		id += "as " + *text
	}
	d := p.signed[id]
	if d == nil {
		c := p.signConfig()
		c.Time = at
		d = &ichido.Delivery{Method: http.MethodPost, Path: "/", Body: bytes.Clone(body), ReceivedAt: at}
		if err := p.f.signRequest(&c, d, timeText); err != nil {
			t.Errorf("sign: %v", err)
			return &ichido.Delivery{}
		}
		for from, to := range p.rename {
			d.Header[to] = d.Header[from]
			delete(d.Header, from)
		}
		if p.v.Kind == kindSig || p.v.Kind == kindJWT {
			p.signed[id] = d
		}
	}
	again := *d
	again.Header, again.Body = d.Header.Clone(), bytes.Clone(d.Body)
	return &again
}

// signKey signs with a raw key, whatever it is.
func (p *profileSuite) signKey(t testing.TB, body []byte, key string) *ichido.Delivery {
	c := p.signConfig()
	d := &ichido.Delivery{Method: http.MethodPost, Header: http.Header{}, Body: bytes.Clone(body), ReceivedAt: suiteNow}
	message, fields, err := p.s.message(d, &c, func(unit string) string { return formatTime(suiteNow, unit) })
	if err != nil {
		t.Fatal(err)
	}
	mac := macs[p.v.Alg]
	if err := p.s.put(d, p.s.grammar.format(keyedSum(mac, key, message), fields)); err != nil {
		t.Fatal(err)
	}
	for from, to := range p.rename {
		d.Header[to] = d.Header[from]
		delete(d.Header, from)
	}
	return d
}

// span returns where the signature is in the header of a genuine delivery.
func (p *profileSuite) span(value string) (int, int) {
	g := &p.s.grammar
	switch {
	case p.v.Kind == kindJWT:
		return strings.LastIndexByte(value, '.') + 1, len(value)
	case p.v.Kind == kindToken && p.v.From[0] == inBasic:
		return len("Basic "), len(value)
	case p.v.Kind == kindToken:
		return len(p.v.StripPrefix), len(value)
	case g.kind == grammarPositional:
		return strings.LastIndex(value, g.separator) + len(g.separator), len(value)
	case g.kind == grammarKV || g.kind == grammarTagged:
		name := g.names[0] + g.assign
		if i := strings.Index(value, g.separator+name); i >= 0 {
			return i + len(g.separator) + len(name), len(value)
		}
		return len(name), len(value)
	}
	return len(g.prefix), len(value)
}

func (p *profileSuite) encoding() string {
	switch {
	case p.v.Kind == kindJWT:
		return providertest.Base64URL
	case p.v.Kind == kindToken && p.v.From[0] == inBasic:
		return providertest.Base64
	case p.v.Kind == kindToken:
		return providertest.Text
	}
	return map[string]string{
		encodingHex: providertest.Hex, encodingBase64: providertest.Base64,
		encodingBase64URL: providertest.Base64URL, encodingB64OfHex: providertest.Base64Hex,
	}[p.v.Sig.Encoding]
}

// testCase is the case of the suite for providers.
func (p *profileSuite) testCase(t testing.TB) providertest.Case {
	t.Helper()
	source, err := newSource(p.f, p.config(t))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := p.f.Sample("evt_1", suiteNow)
	if len(body) > 200 {
		body = []byte(`{"id":"evt_1","type":"sample"}`)
		if p.s.time != nil && p.s.time.kind == inJSON {
			body = []byte(`{"id":"evt_1","` + p.s.time.name + `":1767225600000}`)
		}
	}
	c := providertest.Case{
		Provider: source.Provider, Now: suiteNow, Body: body, Strength: p.s.strength, Every: p.every, Span: p.span, Encoding: p.encoding(),
		Sign: func(body []byte, at time.Time) *ichido.Delivery { return p.sign(t, body, at, nil) },
	}
	name := func(at place) string {
		if to := p.rename[at.name]; to != "" {
			return to
		}
		return at.name
	}
	switch at := p.s.from[0]; at.kind {
	case inHeader:
		c.Header = name(at)
	case inBasic:
		c.Header = "Authorization"
	}
	for _, t := range []template{p.s.head, p.s.tail} {
		for _, part := range t {
			if part.kind == inHeader {
				c.Signed = append(c.Signed, name(part.places[0]))
			}
		}
	}
	for _, unsigned := range p.f.UnsignedIDs {
		c.Unsigned = append(c.Unsigned, textproto.CanonicalMIMEHeaderKey(unsigned))
	}
	if p.v.Kind == kindMAC && !isDigest(p.v.Alg) {
		c.SignKey = func(key string) *ichido.Delivery { return p.signKey(t, body, key) }
		c.GroupSep = p.v.Sig.GroupSep
	}
	p.setTime(t, &c, name)
	return c
}

// setTime says what the suite may try with the time. The spellings of a time
// in words have a test of their own.
func (p *profileSuite) setTime(t testing.TB, c *providertest.Case, name func(place) string) {
	if p.s.time == nil {
		return
	}
	c.Tolerance, c.Unit = p.s.tolerance, time.Second
	if p.s.unit == unitMillis {
		c.Unit = time.Millisecond
	}
	switch p.s.time.kind {
	case inHeader:
		c.Signed = append(c.Signed, name(*p.s.time))
	case inJSON:
		c.Tolerance = 0 // the sample's time is not the clock's
		return
	}
	if c.Tolerance > 0 && (p.s.unit == unitSeconds || p.s.unit == unitMillis) {
		c.SignTime = func(body []byte, text string) *ichido.Delivery { return p.sign(t, body, suiteNow, &text) }
	}
}

// TestEveryProfileStandsTheMatrix tries to get what no sender made accepted,
// with every variant of every profile and each family of header names.
func TestEveryProfileStandsTheMatrix(t *testing.T) {
	full := 0
	all := profileSuites(t)
	for _, p := range all {
		if p.every == 1 {
			full++
		}
		t.Run(p.f.ID+"/"+p.v.Variant, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, p.testCase(t))
		})
	}
	t.Logf("%d profiles, %d suites: %d in full, one of each family of schemes; of the others one in %d of the bits", len(Names()), len(all), full, sampledEvery)
}

// TestEverySampleIsAnEvent: what `send --sample` posts is accepted, has the
// type that it says, and is the same event when it comes again.
func TestEverySampleIsAnEvent(t *testing.T) {
	for _, p := range profileSuites(t) {
		source, err := newSource(p.f, p.config(t))
		if err != nil {
			t.Fatal(err)
		}
		body, eventType := p.f.Sample("sample-1", suiteNow)
		c := p.signConfig()
		c.Type = eventType
		d := &ichido.Delivery{Method: http.MethodPost, Body: body, ReceivedAt: suiteNow}
		if err := SignRequest(p.f.ID, c, d); err != nil {
			t.Errorf("%s: %v", p.f.ID, err)
			continue
		}
		proof, err := source.Provider.Verify(d)
		if err != nil || proof.Key == "" || proof.Unreadable+proof.Ignored+proof.Denied != "" {
			t.Errorf("%s %s: %v %+v", p.f.ID, p.v.Variant, err, proof)
			continue
		}
		if want, _, _ := strings.Cut(eventType, "."); proof.Type != eventType && (p.f.ID != "github" || proof.Type != want) {
			t.Errorf("%s: type is %q, want %q", p.f.ID, proof.Type, eventType)
		}
		if _, err := source.Provider.(ichido.Inspector).Inspect(proof.Type, d.Body); err != nil {
			t.Errorf("%s: the sample does not pass inspection: %v", p.f.ID, err)
		}
		other, _ := p.f.Sample("sample-2", suiteNow)
		c.ID, c.Time = "msg_2", suiteNow.Add(time.Second) // of a token that says nothing of the body, the time is all that differs
		second := &ichido.Delivery{Method: http.MethodPost, Body: other, ReceivedAt: c.Time}
		if err := SignRequest(p.f.ID, c, second); err != nil {
			t.Errorf("%s: %v", p.f.ID, err)
			continue
		}
		if again, err := source.Provider.Verify(second); err != nil || again.Key == proof.Key {
			t.Errorf("%s %s: a second sample is the same event, or none: %v", p.f.ID, p.v.Variant, err)
		}
	}
}
