package providertest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider/providertest"
)

const testSecret = "k3y-for-tests-only-0123456789abcdef"

var now = time.Unix(1767225600, 0)

// simple is a small provider, right as it stands, with faults to switch on.
type simple struct {
	prefix    bool // compares as many bytes as there are
	foldCase  bool // compares base64 without case
	emptyKey  bool // tries an empty key too
	headerID  bool // keys on the unsigned id
	textKey   bool // keys on the text of the signature
	pastOnly  bool // takes any time in the future
	firstOnly bool // reads the first of several headers
	looseTime bool // takes what ParseInt takes
	panics    bool // indexes without a check
	keepsBody bool // returns a key that is the body's memory
	saysMAC   bool // answers with the wrong code
}

var refused = &ichido.Error{Code: ichido.CodeSignature, Op: "verify", Cause: "refused"}

func mac(key, text string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text + "."))
	h.Write(body)
	return h.Sum(nil)
}

func (s *simple) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	signatures, times := d.Header["X-Signature"], d.Header["X-Timestamp"]
	if s.panics && len(signatures) > 0 {
		_ = signatures[0][3]
	}
	if len(signatures) == 0 || len(times) == 0 || !s.firstOnly && (len(signatures) > 1 || len(times) > 1) {
		return ichido.Proof{}, refused
	}
	sent, err := strconv.ParseInt(times[0], 10, 64)
	if err != nil || !s.looseTime && (len(times[0]) != 10 || times[0][0] < '1') {
		return ichido.Proof{}, refused
	}
	want := mac(testSecret, times[0], d.Body)
	ok := s.matches(want, signatures[0]) || s.emptyKey && s.matches(mac("", times[0], d.Body), signatures[0])
	if !ok {
		if s.saysMAC {
			return ichido.Proof{}, fmt.Errorf("expected %x", want)
		}
		return ichido.Proof{}, refused
	}
	off := d.ReceivedAt.Unix() - sent
	if off > 300 || !s.pastOnly && off < -300 {
		return ichido.Proof{}, refused
	}
	p := ichido.Proof{Strength: ichido.Verified, Time: time.Unix(sent, 0), Fingerprint: sha256.Sum256(d.Body)}
	p.Key = hex.EncodeToString(p.Fingerprint[:])
	switch {
	case s.headerID:
		p.Key = d.Header.Get("X-Delivery")
	case s.textKey:
		p.Key = signatures[0]
	case s.keepsBody:
		p.Stored = d.Body
	}
	return p, nil
}

func (s *simple) matches(want []byte, text string) bool {
	if s.foldCase {
		return strings.EqualFold(base64.StdEncoding.EncodeToString(want), text)
	}
	got, err := base64.StdEncoding.Strict().DecodeString(text)
	if s.textKey { // lenient, as the standard decoder is
		got, err = base64.StdEncoding.DecodeString(text)
	} else if err == nil && base64.StdEncoding.EncodedLen(len(got)) != len(text) {
		return false
	}
	if s.prefix {
		return err == nil && len(got) > 0 && bytes.HasPrefix(want, got)
	}
	return err == nil && hmac.Equal(want, got)
}

func simpleCase(s *simple) providertest.Case {
	sign := func(key, text string, body []byte, at time.Time) *ichido.Delivery {
		h := http.Header{"Content-Type": {"application/json"}, "X-Delivery": {"d-1"}, "X-Timestamp": {text}}
		h.Set("X-Signature", base64.StdEncoding.EncodeToString(mac(key, text, body)))
		return &ichido.Delivery{Method: http.MethodPost, Header: h, Body: body, ReceivedAt: at}
	}
	return providertest.Case{
		Provider: s, Now: now, Body: []byte(`{"id":"evt-1","amount":500}`), Strength: ichido.Verified,
		Sign: func(body []byte, at time.Time) *ichido.Delivery {
			return sign(testSecret, strconv.FormatInt(at.Unix(), 10), body, at)
		},
		Header: "X-Signature", Encoding: providertest.Base64,
		Signed: []string{"X-Timestamp"}, Unsigned: []string{"X-Delivery"},
		SignTime:  func(body []byte, text string) *ichido.Delivery { return sign(testSecret, text, body, now) },
		Tolerance: 300 * time.Second, Unit: time.Second,
		SignKey: func(secret string) *ichido.Delivery {
			return sign(secret, strconv.FormatInt(now.Unix(), 10), []byte(`{"id":"evt-1"}`), now)
		},
	}
}

func TestRightProviderPasses(t *testing.T) {
	providertest.Run(t, simpleCase(&simple{}))
}

// recorder collects what a suite reports instead of failing the test.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	reports []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs the suite and returns its reports.
func record(t *testing.T, c providertest.Case) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		providertest.Run(r, c)
	}()
	<-done
	return r.reports
}

func TestFaultyProvidersAreReported(t *testing.T) {
	tests := []struct {
		fault string
		s     *simple
		rule  string
	}{
		{"compares a prefix", &simple{prefix: true}, "signature length:"},
		{"compares base64 without case", &simple{foldCase: true}, "signature bits:"},
		{"accepts an empty key", &simple{emptyKey: true}, "weak keys:"},
		{"keys on the unsigned id", &simple{headerID: true}, "unsigned headers:"},
		{"keys on the text of the signature", &simple{textKey: true}, "spellings:"},
		{"checks only the past", &simple{pastOnly: true}, "window:"},
		{"reads the first of two headers", &simple{firstOnly: true}, "headers once:"},
		{"takes several spellings of a time", &simple{looseTime: true}, "timestamps:"},
		{"panics on a short header", &simple{panics: true}, "panic:"},
		{"holds on to the body", &simple{keepsBody: true}, "genuine:"},
		{"answers with another code", &simple{saysMAC: true}, "/code:"},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			for _, every := range []int{0, 37} { // a sample finds them too
				c := simpleCase(tt.s)
				c.Every = every
				reports := record(t, c)
				if !strings.Contains(strings.Join(reports, "\n"), tt.rule) {
					t.Errorf("one in %d: no report of rule %q; reports: %q", every, tt.rule, reports)
				}
			}
		})
	}
}
