package provider

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"ichido.dev/ichido"
)

func fuzzGrammars() []grammar {
	return []grammar{
		{kind: grammarRaw, prefix: "sha256=", encoding: encodingHex, size: 32},
		{kind: grammarRaw, prefix: "sha1=", prefixCI: true, encoding: encodingHex, size: 20},
		{kind: grammarList, separator: ",", prefix: "v1=", encoding: encodingHex, size: 32},
		{kind: grammarPositional, separator: ",", encoding: encodingHex, size: 32, skip: 1},
		{kind: grammarKV, separator: ",", assign: "=", names: []string{"v1"}, encoding: encodingHex, size: 32},
		{kind: grammarTagged, separator: " ", assign: ",", names: []string{"v1"}, encoding: encodingBase64, size: 32},
		{kind: grammarRaw, encoding: encodingBase64URL},
		{kind: grammarRaw, encoding: encodingB64OfHex, size: 64},
	}
}

// What is read from a header is within bounds, and what is written from it is
// read as the same.
func FuzzSignatureHeader(f *testing.F) {
	for _, seed := range []string{"", "sha256=" + strings.Repeat("0a", 32), "t=1767225600,v1=" + strings.Repeat("ab", 32) + ",v0=x", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v2,x", "1,2,3", ",,,,", "=", "v1=,v1=", strings.Repeat("v1=a,", 40)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, g := range fuzzGrammars() {
			var s signature
			if !g.parse(value, &s) {
				continue
			}
			if s.n > maxCandidates || s.nfields > maxElements {
				t.Fatalf("%s: %d candidates, %d fields", g.kind, s.n, s.nfields)
			}
			for _, candidate := range s.candidates[:s.n] {
				var raw [maxSignature + 4]byte
				var scratch []byte
				n, ok := g.decode(raw[:], &scratch, candidate)
				if !ok {
					continue
				}
				if g.size != 0 && n != g.size {
					t.Fatalf("%s: decoded %d bytes", g.kind, n)
				}
				var again signature
				if !g.parse(g.format(raw[:n], s.fields[:min(s.nfields, 1)]), &again) || again.n != 1 {
					t.Fatalf("%s: what was written is not read: %q", g.kind, g.format(raw[:n], nil))
				}
				var second [maxSignature + 4]byte
				if m, ok := g.decode(second[:], &scratch, again.candidates[0]); !ok || !bytes.Equal(second[:m], raw[:n]) {
					t.Fatalf("%s: %q is read as other bytes", g.kind, candidate)
				}
			}
		}
	})
}

// A timestamp has one text: what is read is written the same.
func FuzzTimestamp(f *testing.F) {
	for _, seed := range []string{"1767225600", "1767225600000", "01767225600", "+1767225600", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123+02:00", "2026-01-01T00:00:00", "Thu, 01 Jan 2026 00:00:00 GMT", "٠١٢٣٤٥٦٧٨٩", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, unit := range units {
			at, ok := parseTime(text, unit)
			if !ok {
				continue
			}
			written := formatTime(at, unit)
			if (unit == unitSeconds || unit == unitMillis || unit == unitHTTP) && written != text {
				t.Fatalf("%s: %q is written as %q", unit, text, written)
			}
			if again, ok := parseTime(written, unit); !ok || again.Unix() != at.Unix() {
				t.Fatalf("%s: %q is read as %v, then %v", unit, text, at, again)
			}
			for _, r := range text {
				if r < ' ' || r > '~' {
					t.Fatalf("%s: read %q", unit, text)
				}
			}
		}
	})
}

// A template is written as it is read, and renders without a panic.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{ts}.{body}", "{{a[[b}", "{header:A,B}:{sig:t}{config:x}", "{json:a.b?}", "{json:a,b}-{form:x}", "{body|sha256hex}", "{body|jsonstr}", "{body|x}", "{", "[", "{}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTemplate(text)
		if err != nil {
			return
		}
		again, err := parseTemplate(parsed.String())
		if err != nil || again.String() != parsed.String() {
			t.Fatalf("%q is written as %q: %v", text, parsed.String(), err)
		}
		s := new(scheme)
		s.splitMessage(parsed.alternative(0).withSettings(map[string]string{"x": "y"}))
		d := &ichido.Delivery{Header: http.Header{"A": {"a"}}, Body: []byte("b")}
		s.append(nil, s.head, new(work), d)
		s.append(nil, s.tail, new(work), d)
	})
}

// Where a form is read at all, it is read as the standard library reads it.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{"payload=%7B%7D", "a=1&a=2", "a=%zz", "a;b=c", "&&", "a", "payload=+%2B", "\xef\xbb\xbfpayload=1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		isForm(body)
		got, ok := parseForm(body)
		if !ok {
			return
		}
		want, err := url.ParseQuery(string(body))
		if err != nil {
			t.Fatalf("%q: the standard library refuses it: %v", body, err)
		}
		for name, values := range want {
			value, times := got.value(name)
			if times != len(values) || value != values[len(values)-1] {
				t.Fatalf("%q: field %q is %q %d times, want %q", body, name, value, times, values)
			}
		}
		payload, one := got.unwrap()
		if one && payload != nil && string(payload) != want.Get(payloadField) {
			t.Fatalf("%q: payload is %q", body, payload)
		}
	})
}

// Where an id is read, encoding/json reads the same one, at both levels; and
// where it is absent, encoding/json finds none.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a"}`, `{"id":"a","id":"b"}`, `{"id":"a","ID":"b"}`, `{"\u0069d":"a"}`, `{"Id":"a"}`, `{"operation":{"name":"x"},"operation":{"name":"y"}}`,
		`{"operation":{"name":"x","Name":"y"}}`, `{"operation":null}`, `{"operation":[{"name":"x"}]}`, `{"id":1e400}`, `[]`, ` {"id":"\ud83d\ude00"} `, `{"id":"a"}x`, "\xef\xbb\xbf{}", `{"lin` + "\u212a" + `":"k","link":"l"}`,
	} {
		f.Add([]byte(seed))
	}
	reader := newEnvelope([][]string{{"id"}, {"operation", "name"}, {"link"}})
	f.Fuzz(func(t *testing.T, body []byte) {
		members := make([]member, 3)
		scanner := new(jsonScanner)
		if reader.read(scanner, body, members) != envelopeObject {
			return
		}
		var want struct {
			ID        any `json:"id"`
			Link      any `json:"link"`
			Operation any `json:"operation"`
		}
		if err := unmarshalNumbers(cutBOM(body), &want); err != nil {
			if depth(body) < 9000 { // encoding/json stops at 10,000 levels
				t.Fatalf("%q: encoding/json refuses it: %v", body, err)
			}
			return
		}
		compareMember(t, body, members[0], want.ID)
		compareMember(t, body, members[2], want.Link)
		if operation, ok := want.Operation.(map[string]any); ok && members[1].state != memberAmbiguous {
			name := operation["name"]
			if members[1].state == memberFound {
				compareMember(t, body, members[1], name)
			}
		}
	})
}

// unmarshalNumbers is encoding/json without floating point.
func unmarshalNumbers(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

func depth(body []byte) int { return bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")) }

func compareMember(t *testing.T, body []byte, m member, want any) {
	t.Helper()
	switch m.state {
	case memberMissing:
		if want != nil {
			t.Fatalf("%q: missing, but encoding/json finds %v", body, want)
		}
	case memberFound:
		var got any
		if err := unmarshalNumbers(m.text(body), &got); err != nil {
			return
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Fatalf("%q: read %s, encoding/json reads %s", body, a, b)
		}
	}
}

// A profile that loads can be compiled and used without a panic.
func FuzzProfile(f *testing.F) {
	f.Add([]byte(goodProfile))
	for _, name := range Names() {
		data, err := profileFiles.ReadFile("profiles/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProfile(data)
		if err != nil {
			return
		}
		source, err := newSource(p, Config{Secrets: secrets(textSecret)})
		if err != nil {
			return
		}
		d := &ichido.Delivery{Header: http.Header{"X-S": {"00"}, "X-T": {"1767225600"}, "Authorization": {"Basic eDp5"}}, Body: []byte(`{"id":"a"}`), ReceivedAt: suiteNow}
		source.Provider.Verify(d)
		p.Sample("x", suiteNow)
	})
}

// Whatever arrives, the answer is a proof or a refusal.
func FuzzVerify(f *testing.F) {
	var providers []ichido.Provider
	var headers []string
	for _, s := range suites(f) {
		p, err := lookup(s.profile)
		if err != nil {
			f.Fatal(err)
		}
		source, err := newSource(p, s.config(f))
		if err != nil {
			f.Fatal(err)
		}
		providers, headers = append(providers, source.Provider), append(headers, s.header)
		body := []byte(`{"id":"a","webhookTimestamp":1767225600000}`)
		f.Add(s.sign(f, p, body, suiteNow, nil).Header.Get(s.header), "1767225600", "msg_1", body)
	}
	f.Fuzz(func(t *testing.T, signature, at, id string, body []byte) {
		for i, p := range providers {
			h := http.Header{headers[i]: {signature}}
			for _, name := range []string{"X-Timestamp", "Webhook-Timestamp", "Svix-Timestamp", "X-Slack-Request-Timestamp", "X-Signature-Timestamp"} {
				h[name] = []string{at}
			}
			h["Webhook-Id"], h["Svix-Id"], h["X-Github-Event"] = []string{id}, []string{id}, []string{id}
			proof, err := p.Verify(&ichido.Delivery{Header: h, Body: body, ReceivedAt: suiteNow})
			if err == nil && proof.Key == "" && !strings.Contains(proof.Unreadable+proof.Ignored, " ") {
				t.Fatalf("a proof of nothing: %+v", proof)
			}
			if err != nil && codeOf(err) != ichido.CodeSignature {
				t.Fatalf("%v", err)
			}
			p.(ichido.Inspector).Inspect(id, body)
		}
	})
}

// A number keeps its exact value, and equal numbers have one text.
func FuzzCanonicalNumber(f *testing.F) {
	for _, seed := range []string{"0", "-0", "1", "1.0", "1e2", "100", "9007199254740993", "1e-7", "0.1", "-1.50E+3", "1e400", "123456789012345678901234567890.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !jsontext.Value(text).IsValid() || strings.TrimSpace(text) != text || strings.ContainsAny(text, `"{[tfn`) || len(text) > 100 {
			return
		}
		got, ok := appendNumber(nil, text)
		if !ok {
			return
		}
		again, ok := appendNumber(nil, string(got))
		if !ok || !bytes.Equal(again, got) {
			t.Fatalf("%s is written as %s, then %s", text, got, again)
		}
		if _, exponent, found := strings.Cut(strings.ToLower(text), "e"); found && len(strings.TrimLeft(exponent, "+-0")) > 3 {
			return // too large for the comparison
		}
		a, ok1 := new(big.Rat).SetString(text)
		b, ok2 := new(big.Rat).SetString(string(got))
		if !ok1 || !ok2 || a.Cmp(b) != 0 {
			t.Fatalf("%s is written as %s", text, got)
		}
	})
}

// A stored body holds no token: verified again, it has [redacted] in its place.
func FuzzTokenInTheBody(f *testing.F) {
	for _, body := range []string{`{"token":"` + textSecret + `","type":"x"}`, "a=b&token=" + textSecret, "t%6fken=" + textSecret + "&token", `{"a":"\u0022","token" : "` + textSecret + `"}`} {
		f.Add(body)
	}
	var providers []ichido.Provider
	for _, from := range []string{"json:token", "form:token"} {
		profile, err := parseProfile([]byte("id: x\nform: true\nverify: [{kind: token, from: \"" + from + "\"}]\nevents: {key: body}\n"))
		if err != nil {
			f.Fatal(err)
		}
		source, err := newSource(profile, Config{Secrets: secrets(textSecret)})
		if err != nil {
			f.Fatal(err)
		}
		providers = append(providers, source.Provider)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, p := range providers {
			proof, err := p.Verify(&ichido.Delivery{Header: http.Header{}, Body: []byte(body), ReceivedAt: suiteNow})
			if err != nil {
				continue
			}
			_, err = p.Verify(&ichido.Delivery{Header: http.Header{}, Body: proof.Stored, ReceivedAt: suiteNow})
			if err != error(errTokenMismatch) {
				t.Errorf("stored %q of %q: %v", proof.Stored, body, err)
			}
		}
	})
}
