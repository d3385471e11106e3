package providertest_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider/providertest"
)

// grouped is a small provider whose header holds groups, "t=...,v1=... t=...",
// right as it stands, with faults to switch on.
type grouped struct {
	lastTime bool // judges the time of the last group, whichever verified
	anyTime  bool // is content with one fresh time
	allTimes bool // wants every time to be fresh
	first    bool // reads the first group only
}

func (g *grouped) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	values := d.Header["X-Signature"]
	if len(values) != 1 {
		return ichido.Proof{}, refused
	}
	verified, passed := false, false // one group; one group with its time
	var last, any, all bool          // which times are fresh
	all = true
	var sent time.Time
	for i, group := range strings.Split(values[0], " ") {
		text, signature, found := strings.Cut(strings.TrimPrefix(group, "t="), ",v1=")
		seconds, err := strconv.ParseInt(text, 10, 64)
		got, decoded := hex.DecodeString(signature)
		if !found || !strings.HasPrefix(group, "t=") || err != nil || len(text) != 10 || text[0] < '1' || decoded != nil || g.first && i > 0 {
			continue
		}
		off := d.ReceivedAt.Unix() - seconds
		last = off >= -300 && off <= 300
		any, all = any || last, all && last
		if hmac.Equal(mac(testSecret, text, d.Body), got) {
			verified = true
			if last {
				passed, sent = true, time.Unix(seconds, 0)
			}
		}
	}
	switch {
	case g.lastTime:
		passed = verified && last
	case g.anyTime:
		passed = verified && any
	case g.allTimes:
		passed = verified && all
	}
	if !passed {
		return ichido.Proof{}, refused
	}
	p := ichido.Proof{Strength: ichido.Verified, Time: sent, Fingerprint: sha256.Sum256(d.Body)}
	p.Key = hex.EncodeToString(p.Fingerprint[:])
	return p, nil
}

func groupedCase(g *grouped) providertest.Case {
	sign := func(key, text string, body []byte, at time.Time) *ichido.Delivery {
		value := "t=" + text + ",v1=" + hex.EncodeToString(mac(key, text, body))
		return &ichido.Delivery{Method: http.MethodPost, Header: http.Header{"X-Signature": {value}}, Body: body, ReceivedAt: at}
	}
	return providertest.Case{
		Provider: g, Now: now, Body: []byte(`{"id":"evt-1"}`), Strength: ichido.Verified,
		Sign: func(body []byte, at time.Time) *ichido.Delivery {
			return sign(testSecret, strconv.FormatInt(at.Unix(), 10), body, at)
		},
		Header: "X-Signature", Encoding: providertest.Hex, GroupSep: " ",
		Span:      func(value string) (int, int) { return strings.LastIndexByte(value, '=') + 1, len(value) },
		SignTime:  func(body []byte, text string) *ichido.Delivery { return sign(testSecret, text, body, now) },
		Tolerance: 300 * time.Second, Unit: time.Second,
	}
}

func TestRightProviderOfGroupsPasses(t *testing.T) {
	providertest.Run(t, groupedCase(&grouped{}))
}

func TestTimesOfOtherGroupsAreReported(t *testing.T) {
	for fault, g := range map[string]*grouped{
		"the last time counts":     {lastTime: true},
		"any fresh time counts":    {anyTime: true},
		"one old time spoils all":  {allTimes: true},
		"only the first is looked": {first: true},
	} {
		t.Run(fault, func(t *testing.T) {
			if reports := record(t, groupedCase(g)); !strings.Contains(strings.Join(reports, "\n"), "groups:") {
				t.Errorf("no report of the rule; reports: %q", reports)
			}
		})
	}
}
