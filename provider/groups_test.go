package provider

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider/providertest"
)

// groupProfile is of a sender that lists a group per secret, each with its
// own time.
const groupProfile = `
id: groups
verify:
  - kind: mac
    alg: hmac-sha256
    msg: "{ts}.{body}"
    ts: {from: "sig:t", unit: s, tolerance: 300}
    sig: {from: "header:X-S", grammar: kv, group_sep: " ", sep: ",", keys: [v1], encoding: hex}
events: {key: %KEY%}
`

func groupSource(t *testing.T, key string) (*profileFile, ichido.Provider) {
	t.Helper()
	f, err := parseProfile([]byte(strings.Replace(groupProfile, "%KEY%", key, 1)))
	if err != nil {
		t.Fatal(err)
	}
	source, err := newSource(f, Config{Secrets: secrets(textSecret)})
	if err != nil {
		t.Fatal(err)
	}
	return f, source.Provider
}

// group signs body at a time, given as the text that is signed.
func group(t *testing.T, f *profileFile, body, text string) string {
	t.Helper()
	h, err := f.sign(&SignConfig{Secret: textSecret}, []byte(body), func(string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	return h.Get("X-S")
}

// Under "signed" the key shows which group was taken.
func TestGroupsPassTheSuite(t *testing.T) {
	for _, key := range []string{keyBody, keySigned} {
		f, p := groupSource(t, key)
		sign := func(body []byte, at time.Time, text string) *ichido.Delivery {
			h := http.Header{"X-S": {group(t, f, string(body), text)}}
			return &ichido.Delivery{Method: http.MethodPost, Header: h, Body: body, ReceivedAt: at}
		}
		providertest.Run(t, providertest.Case{
			Provider: p, Now: suiteNow, Body: []byte(`{"id":"evt_1"}`), Strength: ichido.Verified,
			Sign:   func(body []byte, at time.Time) *ichido.Delivery { return sign(body, at, formatTime(at, unitSeconds)) },
			Header: "X-S", Encoding: providertest.Hex, GroupSep: " ",
			Span:      func(value string) (int, int) { return strings.LastIndexByte(value, '=') + 1, len(value) },
			SignTime:  func(body []byte, text string) *ichido.Delivery { return sign(body, suiteNow, text) },
			Tolerance: 300 * time.Second, Unit: time.Second,
		})
	}
}

// Who can sign is told that it was late, whatever else stands in the header.
func TestTheGroupThatVerifiedIsJudgedByItsOwnTime(t *testing.T) {
	const body = `{"id":"evt_1"}`
	f, p := groupSource(t, keyBody)
	fresh := group(t, f, body, formatTime(suiteNow, unitSeconds))
	old := group(t, f, body, formatTime(suiteNow.Add(-301*time.Second), unitSeconds))
	early := group(t, f, body, formatTime(suiteNow.Add(301*time.Second), unitSeconds))
	forged := fresh[:strings.Index(fresh, "v1=")] + "v1=" + strings.Repeat("ab", 32)
	tests := []struct{ name, value, cause string }{
		{"fresh", fresh, ""},
		{"old", old, "stale_past"},
		{"early", early, "stale_future"},
		{"old, fresh", old + " " + fresh, ""},
		{"fresh, old", fresh + " " + old, ""},
		{"old, forged", old + " " + forged, "stale_past"},
		{"forged, old", forged + " " + old, "stale_past"},
		{"early, forged", early + " " + forged, "stale_future"},
		{"old, early", old + " " + early, "stale_past"},
		{"old, malformed", old + " x", "stale_past"},
		{"malformed, old", "x " + old, "stale_past"},
		{"forged", forged, "signature_mismatch"},
		{"nine", strings.Repeat(forged+" ", 8) + fresh, "signature_malformed"},
		{"eight", strings.Repeat(forged+" ", 7) + fresh, ""},
		{"nothing after the last", fresh + " ", ""},
	}
	for _, tt := range tests {
		d := &ichido.Delivery{Method: http.MethodPost, Header: http.Header{"X-S": {tt.value}}, Body: []byte(body), ReceivedAt: suiteNow}
		proof, err := p.Verify(d)
		cause := ""
		if e := (*ichido.Error)(nil); errors.As(err, &e) {
			cause = e.Cause
		}
		if cause != tt.cause {
			t.Errorf("%s: refused as %q, want %q", tt.name, cause, tt.cause)
		}
		if tt.cause == "" && !proof.Time.Equal(suiteNow) {
			t.Errorf("%s: time is %v", tt.name, proof.Time)
		}
	}
}
