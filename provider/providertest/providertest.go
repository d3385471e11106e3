// Package providertest is what any [ichido.Provider] must pass: a test suite
// that tries to get deliveries accepted that no sender made, and genuine ones
// taken for others. It runs against the providers of package provider, and is
// exported so that a provider written elsewhere can be held to the same.
//
// It knows nothing of any scheme: a [Case] tells it how to make a genuine
// delivery and where the signature is in it. It does not check that a scheme is
// the sender's; published vectors do that.
package providertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"ichido.dev/ichido"
)

// Encodings of a signature.
const (
	Hex       = "hex"
	Base64    = "base64"    // standard, padded
	Base64URL = "base64url" // without padding
	Base64Hex = "base64 of hex"
	Text      = "text" // a token: its bytes are what is compared
)

// Case is a provider and how its sender signs.
type Case struct {
	Provider ichido.Provider

	// Now is the time that deliveries are made at, in whole seconds. Body is
	// a body of at most 200 bytes.
	Now  time.Time
	Body []byte

	// Sign returns a new, genuine delivery of body, sent and received at the
	// given time.
	Sign func(body []byte, at time.Time) *ichido.Delivery

	// Strength is what the proof must say. Where it is not ichido.Verified,
	// the body may be changed.
	Strength string

	// Header holds the signature or the token. Span returns where it is in
	// the header's value, without version or prefix; nil for all of it.
	Header   string
	Span     func(value string) (start, end int)
	Encoding string

	// Signed are the other headers that the signature covers; Unsigned are
	// headers that prove nothing, such as a delivery id.
	Signed   []string
	Unsigned []string

	// SignTime is like Sign, at Now, with text in place of the timestamp; nil
	// where no time is signed. Tolerance is the window, 0 for none, in units
	// of Unit (time.Second or time.Millisecond).
	SignTime  func(body []byte, text string) *ichido.Delivery
	Tolerance time.Duration
	Unit      time.Duration

	// GroupSep separates the groups of Header where its value may hold
	// several, each a time with its own signature; "" where it holds one.
	GroupSep string

	// Every, when it is more than 1, has the rules that try each bit and each
	// byte try one in so many. A scheme is tried in full by leaving it out.
	Every int

	// SignKey is like Sign, at Now, under another secret; nil where the
	// sender signs with a private key.
	SignKey func(secret string) *ichido.Delivery
}

// Run checks every rule. Each failure names the rule and why it stands.
func Run(t testing.TB, c Case) {
	t.Helper()
	r := &runner{t: t, c: c}
	if !r.genuine() {
		return
	}
	r.headersOnce()
	r.signatureBits()
	r.signatureLength()
	r.signedText()
	r.spellings()
	r.unsignedHeaders()
	r.malformedTimes()
	r.window()
	r.groups()
	r.weakKeys()
	r.oddBytes()
	r.concurrent()
}

// runner is one run over a case.
type runner struct {
	t     testing.TB
	c     Case
	proof ichido.Proof // of the genuine delivery
	seen  map[string]int
}

const maxReports = 3 // of one rule

// fail reports a broken rule, a few times at most.
func (r *runner) fail(rule, why, format string, args ...any) {
	r.t.Helper()
	if r.seen == nil {
		r.seen = map[string]int{}
	}
	r.seen[rule]++
	if r.seen[rule] <= maxReports {
		r.t.Errorf("%s: %s (%s)", rule, fmt.Sprintf(format, args...), why)
	}
}

// tries reports whether the i-th of many equal trials is made.
func (r *runner) tries(i int) bool { return r.c.Every <= 1 || i%r.c.Every == 0 }

func (r *runner) delivery() *ichido.Delivery {
	return r.c.Sign(bytes.Clone(r.c.Body), r.c.Now)
}

// verify calls the provider and checks what holds for every call.
func (r *runner) verify(rule string, d *ichido.Delivery) (p ichido.Proof, err error) {
	r.t.Helper()
	defer func() {
		if panicked := recover(); panicked != nil {
			r.fail(rule+"/panic", "a panic is a fault that anyone could cause", "panic: %v", panicked)
			err = errors.New("panic")
		}
	}()
	body := bytes.Clone(d.Body)
	p, err = r.c.Provider.Verify(d)
	if !bytes.Equal(body, d.Body) {
		r.fail(rule+"/body", "the body is stored as it was received", "the provider changed the body")
	}
	if err == nil {
		return p, nil
	}
	var refused *ichido.Error
	if !errors.As(err, &refused) || refused.Code != ichido.CodeSignature {
		r.fail(rule+"/code", "whatever is not genuine is refused in one way", "error is %v, want code %s", err, ichido.CodeSignature)
	}
	return p, err
}

// refuse checks that a delivery is refused.
func (r *runner) refuse(rule, why string, d *ichido.Delivery, what string) {
	r.t.Helper()
	if _, err := r.verify(rule, d); err == nil {
		r.fail(rule, why, "accepted %s", what)
	}
}

// sameOrRefuse checks that a delivery is the same event or no event.
func (r *runner) sameOrRefuse(rule, why string, d *ichido.Delivery, what string) {
	r.t.Helper()
	p, err := r.verify(rule, d)
	if err != nil || notAnEvent(p) {
		return
	}
	if p.Key != r.proof.Key || p.Fingerprint != r.proof.Fingerprint || p.ID != r.proof.ID {
		r.fail(rule, why, "%s made another event", what)
	}
}

// identicalOrRefuse checks that a delivery proves exactly the same or nothing.
func (r *runner) identicalOrRefuse(rule, why string, d *ichido.Delivery, what string) {
	r.t.Helper()
	p, err := r.verify(rule, d)
	if err != nil {
		return
	}
	if diff := cmp.Diff(r.proof, p); diff != "" {
		r.fail(rule, why, "%s changed the proof: %s", what, diff)
	}
}

func notAnEvent(p ichido.Proof) bool { return p.Ignored != "" || p.Denied != "" || p.Unreadable != "" }

// genuine checks the delivery that all others are made from.
func (r *runner) genuine() bool {
	r.t.Helper()
	d := r.delivery()
	p, err := r.verify("genuine", d)
	switch {
	case err != nil:
		r.t.Errorf("genuine: refused: %v", err)
		return false
	case notAnEvent(p) || p.Key == "":
		r.t.Errorf("genuine: is no event: %+v", p)
		return false
	case p.Strength != r.c.Strength:
		r.t.Errorf("genuine: strength is %q, want %q", p.Strength, r.c.Strength)
	case p.Fingerprint == [32]byte{}:
		r.t.Errorf("genuine: the fingerprint is not set")
	}
	if len(r.c.Body) > 200 || len(r.c.Body) == 0 {
		r.t.Errorf("the case's body must have 1 to 200 bytes")
	}
	for i := range d.Body {
		d.Body[i] = 'x' // a proof must not hold on to the body
	}
	again, err := r.verify("genuine", r.delivery())
	if diff := cmp.Diff(again, p); err != nil || diff != "" {
		r.t.Errorf("genuine: the same delivery proves something else the second time, or the proof holds on to the body: %v %s", err, diff)
		return false
	}
	r.proof = p
	return true
}

// headers are all headers that the signature is in or covers.
func (r *runner) headers() []string {
	if r.c.Header == "" {
		return r.c.Signed
	}
	return append([]string{r.c.Header}, r.c.Signed...)
}

// headersOnce: each signed header must occur, and once.
func (r *runner) headersOnce() {
	const rule = "headers once"
	for _, name := range r.headers() {
		d := r.delivery()
		d.Header.Del(name)
		r.refuse(rule, "a missing header is a wrong one", d, "a delivery without "+name)

		good := r.delivery().Header.Get(name)
		bad := damage(good)
		for _, values := range [][]string{{good, bad}, {bad, good}, {good, good}} {
			d := r.delivery()
			d.Header[name] = slices.Clone(values)
			r.refuse(rule, "of two values one reader takes the first and another the last", d, "two values of "+name)
		}
		d = r.delivery()
		d.Header[name] = []string{""}
		r.refuse(rule, "an empty header is a missing one", d, "an empty "+name)
		d = r.delivery()
		d.Header[name] = slices.Repeat([]string{good}, 1000)
		r.refuse(rule, "the work per request has a bound", d, "a thousand values of "+name)
	}
}

// damage changes the last letter or digit of a value.
func damage(value string) string {
	b := []byte(value)
	for i := len(b) - 1; i >= 0; i-- {
		switch c := b[i]; {
		case c == '0':
			b[i] = '1'
			return string(b)
		case c > '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
			b[i] = '0'
			return string(b)
		}
	}
	return value + "0"
}
