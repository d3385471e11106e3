package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
)

// receive signs body as the sender of a suite and verifies it.
func receive(t *testing.T, profile string, c Config, body string, headers ...string) (ichido.Proof, error) {
	t.Helper()
	c.Secrets = secrets(textSecret)
	source, err := New(profile, c)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Sign(profile, SignConfig{Secret: textSecret, Time: suiteNow, ID: "d-1"}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return source.Provider.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte(body), ReceivedAt: suiteNow})
}

func TestAllowedEvents(t *testing.T) {
	allowed := Config{AllowedEvents: []string{"pull_request.opened", "push"}}
	tests := []struct {
		name, event, body string
		want              string // of Proof.Denied
		wantType          string
	}{
		{"the event with its action", "pull_request", `{"action":"opened"}`, "", "pull_request"},
		{"another action", "pull_request", `{"action":"closed"}`, "event type", "pull_request"},
		{"no action", "pull_request", `{}`, "event type", "pull_request"},
		{"an event without actions", "push", `{"ref":"x"}`, "", "push"},
		{"another action of another case", "pull_request", `{"action":"Opened"}`, "event type", "pull_request"},
		{"an action twice", "pull_request", `{"action":"opened","action":"closed"}`, "event type", "pull_request"},
		{"an action that is no text", "pull_request", `{"action":["opened"]}`, "event type", "pull_request"},
		{"an action in a form", "pull_request", `payload=%7B%22action%22%3A%22opened%22%7D`, "", "pull_request"},
		{"an event with any action", "push", `{"action":"x"}`, "", "push"},
		{"another event", "issues", `{"action":"opened"}`, "event type", "issues"},
		{"in another case", "Push", `{}`, "event type", "Push"},
		{"none", "", `{}`, "event type", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			if tt.event != "" {
				headers = []string{"X-GitHub-Event", tt.event}
			}
			p, err := receive(t, "github", allowed, tt.body, headers...)
			if err != nil || p.Denied != tt.want || p.Type != tt.wantType {
				t.Errorf("denied %q, type %q, %v; want %q, %q", p.Denied, p.Type, err, tt.want, tt.wantType)
			}
		})
	}
}

func TestAllowedRepositories(t *testing.T) {
	allowed := Config{AllowedRepositories: []string{"Octo-Org/Inbox"}}
	tests := []struct{ name, event, body, denied, unreadable string }{
		{"allowed, in any case", "push", `{"repository":{"full_name":"octo-org/INBOX"}}`, "", ""},
		{"another", "push", `{"repository":{"full_name":"octo-org/other"}}`, "repository", ""},
		{"a ping without one", "ping", `{"zen":"x","hook_id":1}`, "repository", ""},
		{"of another shape", "push", `{"repository":"octo-org/inbox"}`, "repository", ""},
		{"twice", "push", `{"repository":{"full_name":"octo-org/inbox"},"repository":{"full_name":"evil/x"}}`, "repository", ""},
		{"twice inside", "push", `{"repository":{"full_name":"octo-org/inbox","full_name":"evil/x"}}`, "repository", ""},
		{"in two cases", "push", `{"repository":{"full_name":"octo-org/inbox"},"Repository":{"full_name":"evil/x"}}`, "repository", ""},
		{"not JSON", "push", `hello`, "", "not JSON"},
		{"in a form", "push", `payload=%7B%22repository%22%3A%7B%22full_name%22%3A%22octo-org%2Finbox%22%7D%7D`, "", ""},
		{"in two forms", "push", `payload=%7B%7D&payload=%7B%7D`, "", "not JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := receive(t, "github", allowed, tt.body, "X-GitHub-Event", tt.event)
			if err != nil || p.Denied != tt.denied || p.Unreadable != tt.unreadable {
				t.Errorf("denied %q, unreadable %q, %v", p.Denied, p.Unreadable, err)
			}
		})
	}
}

func TestTypeHeaderIsOneWord(t *testing.T) {
	for _, event := range []string{"pull_request.opened", "push\x00", "pu\nsh", "p\u00fcsh", strings.Repeat("x", 200)} {
		if _, err := receive(t, "github", Config{}, `{}`, "X-GitHub-Event", event); err != error(errTypeMalformed) {
			t.Errorf("%q: got %v", event, err)
		}
	}
}

// A handler must not see another type because a policy has the body read.
func TestTypeDoesNotDependOnTheConfiguration(t *testing.T) {
	linear := `{"action":"create","type":"Issue","data":{"id":"x"},"webhookTimestamp":1767225600000}`
	for name, c := range map[string]Config{
		"the profile's":       {},
		"allowed events":      {AllowedEvents: []string{"pull_request.opened", "Issue.create"}},
		"whole types":         {AllowedEvents: []string{"pull_request", "Issue"}},
		"errors are answered": {AcceptUnreadable: ptr(false)},
		"a fingerprint":       {Fingerprint: []string{"action"}},
	} {
		p, err := receive(t, "github", c, `{"action":"opened"}`, "X-GitHub-Event", "pull_request")
		if err != nil || p.Type != "pull_request" || p.Denied != "" {
			t.Errorf("%s, github: type %q, denied %q, %v", name, p.Type, p.Denied, err)
		}
		p, err = receive(t, "linear", c, linear)
		if err != nil || p.Type != "Issue" || p.Denied != "" {
			t.Errorf("%s, linear: type %q, denied %q, %v", name, p.Type, p.Denied, err)
		}
	}
}

// Of two header families a delivery uses one, for all of its parts.
func TestHeaderFamiliesAreNotMixed(t *testing.T) {
	source, err := New("svix", Config{Secrets: secrets(whsecSecret)})
	if err != nil {
		t.Fatal(err)
	}
	sign := func() http.Header {
		h, err := Sign("svix", SignConfig{Secret: whsecSecret, ID: "msg_1", Time: suiteNow}, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	rename := func(h http.Header, names ...string) http.Header {
		for _, name := range names {
			h["Webhook-"+name] = h["Svix-"+name]
			delete(h, "Svix-"+name)
		}
		return h
	}
	both := sign()
	both.Set("Webhook-Signature", both.Get("Svix-Signature"))
	tests := []struct {
		name string
		h    http.Header
		want error
	}{
		{"svix", sign(), nil},
		{"webhook", rename(sign(), "Id", "Timestamp", "Signature"), nil},
		{"both", both, errAmbiguous},
		{"the id of the other", rename(sign(), "Id"), errHeaderMissing},
		{"the time of the other", rename(sign(), "Timestamp"), errTimeMissing},
		{"the signature of the other", rename(sign(), "Signature"), errTimeMissing},
	}
	for _, tt := range tests {
		_, err := source.Provider.Verify(&ichido.Delivery{Method: http.MethodPost, Header: tt.h, Body: []byte("{}"), ReceivedAt: suiteNow})
		if tt.want == nil && err != nil || tt.want != nil && err != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// The work that a forged delivery causes has a bound.
func TestCandidatesHaveABound(t *testing.T) {
	for _, s := range suites(t) {
		if s.after != "," {
			continue
		}
		f, _ := lookup(s.profile)
		source, err := newSource(f, s.config(t))
		if err != nil {
			t.Fatal(err)
		}
		d := s.sign(t, f, []byte(`{"type":"x"}`), suiteNow, nil)
		right := d.Header.Get(s.header)
		tag, _, _ := strings.Cut(right, ",")
		wrong, bound := tag+","+strings.Repeat("A", 43)+"=", maxCandidates
		if s.private != "" {
			wrong, bound = tag+","+strings.Repeat("A", 86)+"==", maxPublicCandidates
		}
		for n, want := range map[int]bool{1: true, bound - 1: true, bound: false, 100: false} {
			d.Header[s.header] = []string{strings.Repeat(wrong+" ", n) + right}
			if _, err := source.Provider.Verify(d); (err == nil) != want {
				t.Errorf("%s %s: %d wrong candidates before the right one: %v", s.profile, s.variant, n, err)
			}
		}
	}
}

// The same body under five types is one event: the type is not signed.
func TestUnsignedTypeDoesNotMakeAnEvent(t *testing.T) {
	keys := map[string]bool{}
	for _, event := range []string{"issue_comment", "push", "delete", "create", "ping"} {
		p, err := receive(t, "github", Config{}, `{"action":"created"}`, "X-GitHub-Event", event, "X-GitHub-Delivery", event)
		if err != nil || p.TypeSigned || p.Type != event || p.ID != "" {
			t.Fatalf("%+v, %v", p, err)
		}
		keys[p.Key] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d events", len(keys))
	}
}

func TestGitHubReadsNoBodyUnlessItMust(t *testing.T) {
	p, err := receive(t, "github", Config{}, `not JSON at all`, "X-GitHub-Event", "push")
	sum := sha256.Sum256([]byte(`not JSON at all`))
	if err != nil || p.Unreadable != "" || p.Key != hex.EncodeToString(sum[:]) || p.Fingerprint != sum {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = receive(t, "github", Config{AcceptUnreadable: ptr(false)}, `{"action":"opened"}`, "X-GitHub-Event", "pull_request")
	if err != nil || p.Type != "pull_request" {
		t.Errorf("type is %q, %v", p.Type, err)
	}
}

// A retry is signed anew, with another time: it is a duplicate, not a conflict.
func TestRetryIsADuplicate(t *testing.T) {
	for _, profile := range []string{"stripe", "slack", "hmac"} {
		body := `{"id":"evt_1","event_id":"evt_1","type":"x"}`
		source, err := New(profile, Config{Secrets: secrets(textSecret)})
		if err != nil {
			t.Fatal(err)
		}
		var proofs []ichido.Proof
		for _, at := range []time.Time{suiteNow, suiteNow.Add(time.Hour)} {
			h, _ := Sign(profile, SignConfig{Secret: textSecret, Time: at}, []byte(body))
			p, err := source.Provider.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte(body), ReceivedAt: at})
			if err != nil {
				t.Fatal(err)
			}
			proofs = append(proofs, p)
		}
		if proofs[0].Key != "evt_1" || proofs[0].Key != proofs[1].Key || proofs[0].Fingerprint != proofs[1].Fingerprint {
			t.Errorf("%s: %+v", profile, proofs)
		}
		if !proofs[0].Time.Equal(suiteNow) || !proofs[1].Time.Equal(suiteNow.Add(time.Hour)) {
			t.Errorf("%s: times are %v and %v", profile, proofs[0].Time, proofs[1].Time)
		}
	}
}

func TestKeyTemplate(t *testing.T) {
	c := Config{Key: "{json:channel}:{json:event.ts}"}
	tests := []struct{ name, body, key string }{
		{"both", `{"id":"a","channel":"C1","event":{"ts":"1.0001"}}`, "C1:1.0001"},
		{"other id, same fact", `{"id":"b","channel":"C1","event":{"ts":"1.0001"}}`, "C1:1.0001"},
		{"whole numbers as written", `{"id":"a","channel":"C1","event":{"ts":9007199254740993}}`, "C1:9007199254740993"},
		{"missing", `{"id":"a","channel":"C1"}`, ""},
		{"empty", `{"id":"a","channel":"","event":{"ts":"1"}}`, ""},
		{"null", `{"id":"a","channel":null,"event":{"ts":"1"}}`, ""},
		{"twice", `{"id":"a","channel":"C1","channel":"C2","event":{"ts":"1"}}`, ""},
		{"fractions", `{"id":"a","channel":"C1","event":{"ts":1.5}}`, ""},
		{"not text", `{"id":"a","channel":{},"event":{"ts":"1"}}`, ""},
		{"separator in the second", `{"id":"a","channel":"C1","event":{"ts":"1:2"}}`, ""},
		{"white space", `{"id":"a","channel":"C 1","event":{"ts":"1"}}`, "C 1:1"},
		{"a character that cannot be shown", `{"id":"a","channel":"C\u00071","event":{"ts":"1"}}`, ""},
		{"one that turns the reading direction", `{"id":"a","channel":"C\u202e1","event":{"ts":"1"}}`, ""},
		{"too long", `{"id":"a","channel":"` + strings.Repeat("c", 250) + `","event":{"ts":"1234567"}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := receive(t, "hmac", c, tt.body)
			if err != nil || p.Key != tt.key || (p.Unreadable != "") != (tt.key == "") {
				t.Errorf("key %q, unreadable %q, %v; want %q", p.Key, p.Unreadable, err, tt.key)
			}
		})
	}
	p, err := receive(t, "hmac", Config{Key: "{json:a}:{json:b?}"}, `{"id":"x","a":"1"}`)
	if err != nil || p.Key != "1:" {
		t.Errorf("optional: key %q, %v", p.Key, err)
	}
}

func TestFingerprintOfMembers(t *testing.T) {
	c := Config{Fingerprint: []string{"id", "amount"}}
	of := func(body string) ([32]byte, string) {
		t.Helper()
		p, err := receive(t, "hmac", c, body)
		if err != nil {
			t.Fatal(err)
		}
		return p.Fingerprint, p.Unreadable
	}
	base, _ := of(`{"id":"a","amount":100}`)
	if want := sha256.Sum256([]byte(`{"amount":100,"id":"a"}`)); base != want {
		t.Error("the fingerprint is not that of the canonical JSON")
	}
	for _, same := range []string{
		`{ "amount" : 100 , "id" : "a" }`, `{"amount":100,"id":"a","note":"other"}`, `{"id":"\u0061","amount":100}`,
		`{"id":"a","amount":100.0}`, `{"id":"a","amount":1e2}`, `{"id":"a","amount":1000E-1}`,
	} {
		if got, bad := of(same); got != base || bad != "" {
			t.Errorf("%s is another event (%s)", same, bad)
		}
	}
	for _, other := range []string{`{"id":"a","amount":101}`, `{"id":"a","amount":"100"}`, `{"id":"a","amount":100.000000000000000001}`, `{"id":"a","amount":[100]}`, `{"id":"a","amount":-100}`} {
		if got, _ := of(other); got == base {
			t.Errorf("%s is the same event", other)
		}
	}
	big, _ := of(`{"id":"a","amount":9007199254740993}`)
	if near, _ := of(`{"id":"a","amount":9007199254740992}`); near == big {
		t.Error("2^53+1 is 2^53")
	}
	for _, bad := range []string{`{"id":"a"}`, `{"id":"a","amount":1,"amount":1}`, `{"id":"a","amount":{"x":1,"x":2}}`, `{"id":"a","Amount":1}`} {
		if _, unreadable := of(bad); unreadable == "" {
			t.Errorf("%s is readable", bad)
		}
	}
}

// Of shared-secret only the key counts.
func TestSharedSecretSameKeyIsADuplicate(t *testing.T) {
	a, err1 := receive(t, "shared-secret", Config{}, `{"name":"operations/1","state":"DONE","extra":1}`)
	b, err2 := receive(t, "shared-secret", Config{}, `{"state":"DONE","name":"operations/1"}`)
	if err1 != nil || err2 != nil || a.Key != b.Key || a.Fingerprint != b.Fingerprint || a.Strength != ichido.Authenticated {
		t.Errorf("%+v %+v %v %v", a, b, err1, err2)
	}
	if len(a.Redact) != 1 || a.Redact[0] != "X-Hook-Secret" {
		t.Errorf("redact is %v", a.Redact)
	}
}

func TestAcknowledgements(t *testing.T) {
	tests := []struct{ profile, verdict, want string }{
		{"hmac", "accepted", `{"accepted":true,"duplicate":false}`},
		{"hmac", "duplicate", `{"accepted":true,"duplicate":true}`},
		{"hmac", "ignored", ""},
		{"shared-secret", "accepted", `{"status":"accepted"}`},
		{"shared-secret", "duplicate", `{"status":"duplicate"}`},
		{"shared-secret", "ignored", `{"status":"ignored"}`},
		{"shared-secret", "quarantined", `{"status":"accepted"}`},
		{"shared-secret", ichido.CodeSignature, ""},
		{"stripe", "accepted", ""},
	}
	for _, tt := range tests {
		source, err := New(tt.profile, Config{Secrets: secrets(textSecret)})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		answered := source.Provider.(ichido.Acknowledger).Acknowledge(w, tt.verdict, "ev_1")
		if answered != (tt.want != "") || w.Body.String() != tt.want || answered && (w.Code != 200 || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%s %s: %v %d %q", tt.profile, tt.verdict, answered, w.Code, w.Body)
		}
	}
}

func TestErrorsHoldNoSecretAndNoMAC(t *testing.T) {
	for _, s := range suites(t) {
		f, _ := lookup(s.profile)
		source, err := newSource(f, s.config(t))
		if err != nil {
			t.Fatal(err)
		}
		body := []byte(`{"ok":true,"id":"x"}`)
		d := s.sign(t, f, body, suiteNow, nil)
		right := d.Header.Get(s.header)
		for _, bad := range []string{"", strings.Repeat("0", len(right)), right[:len(right)-1], "v1," + right} {
			d.Header[s.header] = []string{bad}
			d.ReceivedAt = suiteNow.Add(1000 * time.Hour)
			_, err := source.Provider.Verify(d)
			var refused *ichido.Error
			if !errors.As(err, &refused) {
				continue
			}
			text := err.Error() + refused.Cause + refused.Hint
			core := right[strings.LastIndexAny(right, ",.=")+1:]
			if s.enc == "base64" {
				core = strings.TrimSuffix(right[strings.IndexByte(right, ',')+1:], "=")
			}
			if core != "" && strings.Contains(text, core) || s.secret != "" && strings.Contains(text, s.secret) {
				t.Errorf("%s: %s", s.profile, text)
			}
		}
	}
}

func TestSkewOfAGenuineSender(t *testing.T) {
	verify := signedStripe(t, Config{Secrets: secrets(textSecret)}, `{"id":"evt_1"}`)
	for off, cause := range map[time.Duration]string{-48 * time.Hour: "stale_future", 48 * time.Hour: "stale_past"} {
		_, err := verify(suiteNow.Add(off))
		var refused *ichido.Error
		var s interface{ Skew() time.Duration }
		if !errors.As(err, &refused) || refused.Cause != cause || !errors.As(err, &s) || s.Skew() != -off {
			t.Errorf("%v: got %v", off, err)
		}
		if !strings.Contains(err.Error(), "172800 s") {
			t.Errorf("%v does not say by how much", err)
		}
	}
	// A forged signature does not tell what our clock says.
	source, _ := New("stripe", Config{Secrets: secrets(textSecret)})
	h := http.Header{"Stripe-Signature": {"t=1500000000,v1=" + strings.Repeat("0", 64)}}
	_, err := source.Provider.Verify(&ichido.Delivery{Header: h, Body: []byte("{}"), ReceivedAt: suiteNow})
	if err != error(errMismatch) {
		t.Errorf("got %v, want a mismatch", err)
	}
}

func TestBodyWithoutAnIDIsInvalidNotUnreadable(t *testing.T) {
	for body, invalid := range map[string]bool{`{"amount":1}`: true, `{"id":""}`: true, `{"id":7}`: true, `{"id":`: false, `{"id":"a","id":"b"}`: false} {
		p, err := receive(t, "hmac", Config{}, body)
		if err != nil || p.Unreadable == "" || p.Invalid != invalid {
			t.Errorf("%s: unreadable %q, invalid %v, %v; want invalid %v", body, p.Unreadable, p.Invalid, err, invalid)
		}
	}
	c := Config{Fingerprint: []string{"id", "amount"}}
	for body, invalid := range map[string]bool{`{"id":"a"}`: true, `{"id":"a","amount":1,"amount":1}`: false} {
		p, err := receive(t, "hmac", c, body)
		if err != nil || p.Unreadable == "" || p.Invalid != invalid {
			t.Errorf("%s: unreadable %q, invalid %v, %v; want invalid %v", body, p.Unreadable, p.Invalid, err, invalid)
		}
	}
}

// receiveDiscord verifies a body that is signed with a published test key.
func receiveDiscord(t *testing.T, body string) (ichido.Proof, error) {
	t.Helper()
	const seed = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	const public = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
	src, err := New("discord", Config{Secrets: []Secret{{Value: public}}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := Sign("discord", SignConfig{Secret: seed, Time: suiteNow}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return src.Provider.Verify(&ichido.Delivery{Method: "POST", Header: h, Body: []byte(body), ReceivedAt: suiteNow})
}

func TestDiscordTellsEventsInteractionsAndHandshakesApart(t *testing.T) {
	const event = `{"version":1,"application_id":"1","type":1,"event":{"type":"X","timestamp":"2024-10-18T14:42:53"}}`
	sum := sha256.Sum256([]byte(event))
	for body, want := range map[string]struct {
		key     string
		invalid bool
	}{
		event:                                {hex.EncodeToString(sum[:]), false},
		`{"id":"7","type":2}`:                {"7", false},
		`{"id":"","type":2}`:                 {"", true},
		`{"id":null,"type":2}`:               {"", true},
		`{"type":2,"data":{"event":"none"}}`: {"", true},
	} {
		p, err := receiveDiscord(t, body)
		if err != nil || p.Key != want.key || p.Invalid != want.invalid {
			t.Errorf("%s: key %q, invalid %v, %v; want %+v", body, p.Key, p.Invalid, err, want)
		}
	}
}
