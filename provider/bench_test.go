package provider

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
)

// benchBody is a JSON body of about size bytes with an id and a type first.
func benchBody(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"id":"evt_1","type":"sample","action":"opened","webhookTimestamp":1767225600000,"data":{"list":[`)
	for i := 0; b.Len() < size-100; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"some text of a usual length","url":"https://api.example.com/a/%d","flag":true,"none":null}`, i, i)
	}
	b.WriteString(`]}}`)
	return []byte(b.String())
}

// bareHMAC is what a plain receiver does: a new MAC, the hex of the header,
// and the comparison.
func bareHMAC(key []byte, body []byte, header string) bool {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	want, err := hex.DecodeString(header)
	return err == nil && hmac.Equal(mac.Sum(nil), want)
}

// timeBare returns the time of one bare HMAC, measured beside the benchmark.
func timeBare(body []byte) float64 {
	header := strings.Repeat("0", 64)
	const rounds = 2000
	best := time.Duration(1 << 62)
	for range 5 {
		start := time.Now()
		for range rounds {
			bareHMAC([]byte(textSecret), body, header)
		}
		best = min(best, time.Since(start))
	}
	return float64(best.Nanoseconds()) / rounds
}

// BenchmarkVerify reports, beside the time, how many bare HMACs of the same
// body it is worth.
func BenchmarkVerify(b *testing.B) {
	for _, s := range suites(b) {
		if s.variant == "dynamic" || s.rename != nil {
			continue
		}
		for _, size := range []int{1300, 20000} {
			b.Run(fmt.Sprintf("%s-%s/%d", s.profile, s.variant, size), func(b *testing.B) {
				f, err := lookup(s.profile)
				if err != nil {
					b.Fatal(err)
				}
				source, err := newSource(f, s.config(b))
				if err != nil {
					b.Fatal(err)
				}
				body := benchBody(size)
				d := s.sign(b, f, body, suiteNow, nil)
				bare := timeBare(body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := source.Provider.Verify(d); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/bare, "x-bare-HMAC")
			})
		}
	}
}

// BenchmarkSignature is the signature check without the identity.
func BenchmarkSignature(b *testing.B) {
	for _, profile := range []string{"github", "stripe"} {
		for _, size := range []int{1300, 20000} {
			b.Run(fmt.Sprintf("%s/%d", profile, size), func(b *testing.B) {
				body := benchBody(size)
				e, d := benchEngine(b, profile, body)
				w := e.newWork().(*work)
				bare := timeBare(body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := e.schemes[0].verify(w, d); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/bare, "x-bare-HMAC")
			})
		}
	}
}

func benchEngine(t testing.TB, profile string, body []byte) (*engine, *ichido.Delivery) {
	t.Helper()
	source, err := New(profile, Config{Secrets: secrets(textSecret)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := Sign(profile, SignConfig{Secret: textSecret, Time: suiteNow, Type: "push"}, body)
	if err != nil {
		t.Fatal(err)
	}
	return source.Provider.(*engine), &ichido.Delivery{Method: http.MethodPost, Header: h, Body: body, ReceivedAt: suiteNow}
}

// A genuine delivery costs its key and its texts; a forged one nothing.
func TestAllocations(t *testing.T) {
	for _, s := range suites(t) {
		if s.variant == "dynamic" {
			continue
		}
		f, _ := lookup(s.profile)
		source, err := newSource(f, s.config(t))
		if err != nil {
			t.Fatal(err)
		}
		body := []byte(`{"id":"evt_1","type":"sample","object_kind":"push","event_id":"Ev1","webhookTimestamp":1767225600000,"name":"operations/1"}`)
		if s.profile == "linear" {
			body = bytes.Replace(body, []byte(`"id":"evt_1",`), nil, 1)
		}
		good := s.sign(t, f, body, suiteNow, nil)
		bad := s.sign(t, f, append(bytes.Clone(body), ' '), suiteNow, nil)
		bad.Body = body
		if s.enc == "text" {
			bad.Header[s.header] = []string{strings.Repeat("x", 35)}
		}
		if _, err := source.Provider.Verify(bad); err == nil {
			t.Fatalf("%s: the forged delivery is accepted", s.profile)
		}
		limit, forged := 3.0, 0.0
		switch {
		case s.profile == "linear":
			limit = 4 // type and action, joined
		case s.private != "":
			forged = 3 // inside crypto/ed25519, one per key
		}
		if n := testing.AllocsPerRun(200, func() { source.Provider.Verify(good) }); n > limit && !raceEnabled {
			t.Errorf("%s %s: %v allocations for a genuine delivery", s.profile, s.variant, n)
		}
		if n := testing.AllocsPerRun(200, func() { source.Provider.Verify(bad) }); n > forged && !raceEnabled {
			t.Errorf("%s %s: %v allocations for a forged delivery", s.profile, s.variant, n)
		}
	}
}
