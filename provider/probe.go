package provider

import (
	"crypto/subtle"
	"hash"
	"net/http"
	"strings"
	"time"

	"ichido.dev/ichido"
)

// probe is a handshake by GET or HEAD, compiled. It is answered for ever:
// senders repeat theirs.
type probe struct {
	challenge
	method    string
	when      []condition
	values    []place // of the placeholders of the answer
	otherwise int
}

// condition is a value that a handshake must have.
type condition struct {
	at   place
	want string
	any  bool
}

// newProbe compiles a handshake that was checked. It returns nil where a
// setting is missing that it compares with: then nothing is answered.
func newProbe(spec challengeSpec, settings map[string]string) *probe {
	p := &probe{challenge: *newChallenge(challengeSpec{Pattern: spec.Pattern, Reply: spec.Reply}), method: spec.Method, otherwise: spec.Otherwise}
	for from, value := range spec.When {
		places, _ := parsePlaces(from)
		c := condition{at: places[0], want: value, any: value == anyValue}
		if name, found := strings.CutPrefix(value, "{config:"); found {
			if c.want = settings[strings.TrimSuffix(name, "}")]; c.want == "" {
				return nil
			}
		}
		p.when = append(p.when, c)
	}
	for _, part := range p.body {
		if part.kind != partLiteral {
			p.values = append(p.values, part.places[0])
		}
	}
	return p
}

// probe answers a handshake by GET or HEAD.
func (e *engine) probe(rw http.ResponseWriter, d *ichido.Delivery) bool {
	for _, p := range e.probes {
		if p.method == d.Method && p.answer(rw, e, d) {
			return true
		}
	}
	return false
}

// answer writes the answer if d is this handshake. Values are compared in
// constant time: one of them may be a word that only the sender was told.
func (p *probe) answer(rw http.ResponseWriter, e *engine, d *ichido.Delivery) bool {
	match := 1
	for _, c := range p.when {
		text, found := probeValue(d, c.at)
		if !found {
			return false
		}
		if !c.any {
			match &= subtle.ConstantTimeCompare([]byte(text), []byte(c.want))
		}
	}
	if match == 0 {
		if p.otherwise == 0 {
			return false
		}
		writeAnswer(rw, p.otherwise, plainText, "")
		return true
	}
	text, err := p.render(e, d, func(i int) (string, bool) { return probeValue(d, p.values[i]) })
	switch err {
	case nil:
		writeAnswer(rw, p.status, p.ctype, text)
	case errNotSafe:
		writeAnswer(rw, http.StatusBadRequest, plainText, "")
	default:
		return false
	}
	return true
}

// probeValue reads a value that must be there once.
func probeValue(d *ichido.Delivery, at place) (string, bool) {
	if at.kind == inHeader {
		values := d.Header[at.name]
		return strings.Join(values, ""), len(values) == 1
	}
	text, err := queryValue(d.RawQuery, at.name)
	return text, err == nil
}

// proof is the MAC of a challenge under the first secret that is live.
func (e *engine) proof(text string, at time.Time) ([]byte, bool) {
	for _, s := range e.schemes {
		for _, k := range s.keys {
			if s.kind != kindMAC || !k.secret.live(at) {
				continue
			}
			mac := k.states.Get().(hash.Hash)
			mac.Reset()
			mac.Write([]byte(text))
			sum := mac.Sum(nil)
			k.states.Put(mac)
			return sum, true
		}
	}
	return nil, false
}

const maxProofText = 128 // bytes: what a handshake may have signed

// couldBeProof reports whether what is signed is what a handshake signs for
// anyone who asks: it is no delivery then, whoever made the MAC.
func (s *scheme) couldBeProof(w *work, d *ichido.Delivery) bool {
	size := len(w.head) + len(w.tail)
	if s.body {
		size += len(d.Body)
	}
	if s.proofs == nil || size > maxProofText {
		return false
	}
	w.message = append(w.message[:0], w.head...)
	if s.body {
		w.message = append(w.message, d.Body...)
	}
	w.message = append(w.message, w.tail...)
	return s.proofs.Match(w.message)
}
