package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"ichido.dev/ichido"
)

// challenge is a handshake, compiled.
type challenge struct {
	members *envelope // those of when, then those that are echoed
	values  []string  // of the members of when, as JSON or as text
	unless  bool      // the member after those must be missing
	echoed  []int     // by placeholder of the answer: which of the echoed members it is
	pattern *regexp.Regexp
	status  int
	ctype   []string
	body    template
	hint    []byte // a value that the body of every such handshake holds
}

// errNotSafe is why a handshake is answered with 400.
var errNotSafe = errors.New("not what a challenge looks like")

// newChallenge compiles a handshake that was checked.
func newChallenge(spec challengeSpec) *challenge {
	c := &challenge{status: spec.Reply.Status, ctype: []string{spec.Reply.ContentType}}
	var paths [][]string
	for from, value := range spec.When {
		places, _ := parsePlaces(from)
		paths = append(paths, places[0].path)
		c.values = append(c.values, value)
		if value != anyValue && len(value) > len(c.hint) {
			c.hint = []byte(value)
		}
	}
	if c.unless = spec.Unless != ""; c.unless {
		places, _ := parsePlaces(spec.Unless)
		paths = append(paths, places[0].path)
	}
	c.body, _ = parseTemplate(spec.Reply.Body)
	var names []string // of the echoed members, each read once
	for _, p := range c.body {
		if p.kind == partLiteral || p.places[0].kind != inJSON {
			continue
		}
		slot := slices.Index(names, p.places[0].name)
		if slot < 0 {
			slot = len(names)
			names, paths = append(names, p.places[0].name), append(paths, p.places[0].path)
		}
		c.echoed = append(c.echoed, slot)
	}
	c.members = newEnvelope(paths)
	if spec.Pattern != "" {
		c.pattern = regexp.MustCompile(spec.Pattern)
	}
	return c
}

// addChallenges compiles the handshakes. Where the answer to one is a MAC, no
// delivery may be what it signs.
func (e *engine) addChallenges(f *profileFile, settings map[string]string) {
	for _, spec := range f.Challenge {
		c := newChallenge(spec)
		if spec.Method == http.MethodGet || spec.Method == http.MethodHead {
			if p := newProbe(spec, settings); p != nil {
				e.probes = append(e.probes, p)
			}
		} else {
			e.challenges = append(e.challenges, c)
		}
		if c.body.has(partProofHex) || c.body.has(partProofBase64) {
			for _, s := range e.schemes {
				s.proofs = c.pattern
			}
		}
	}
}

// Challenge implements ichido.Challenger. A handshake by POST is signed, and
// answered only then; one by GET or HEAD is not.
func (e *engine) Challenge(rw http.ResponseWriter, d *ichido.Delivery, verified bool) bool {
	if d.Method != http.MethodPost && d.Method != "" {
		return !verified && e.probe(rw, d)
	}
	if !verified {
		return false
	}
	for _, c := range e.challenges {
		if !bytes.Contains(d.Body, c.hint) {
			continue
		}
		w := e.work.Get().(*work)
		answered := c.answer(rw, w, d, e)
		w.scanner.release()
		e.release(w)
		if answered {
			return true
		}
	}
	return false
}

// answer writes the answer if body is this handshake.
func (c *challenge) answer(rw http.ResponseWriter, w *work, d *ichido.Delivery, e *engine) bool {
	body := d.Body
	members := make([]member, c.members.paths)
	if c.members.read(&w.scanner, body, members) != envelopeObject {
		return false
	}
	for i, want := range c.values {
		text, state := memberText(body, members[i], true)
		if state != valueFound || want != anyValue && text != want {
			return false
		}
	}
	echoed := members[len(c.values):]
	if c.unless {
		if echoed[0].state != memberMissing {
			return false
		}
		echoed = echoed[1:]
	}
	text, err := c.render(e, d, func(i int) (string, bool) {
		text, state := memberText(body, echoed[c.echoed[i]], false)
		return text, state == valueFound
	})
	if err != nil {
		writeAnswer(rw, http.StatusBadRequest, plainText, "")
		return true
	}
	writeAnswer(rw, c.status, c.ctype, text)
	return true
}

var plainText = []string{"text/plain; charset=utf-8"}

// writeAnswer answers a handshake. What it echoes is never taken for a page.
func writeAnswer(rw http.ResponseWriter, status int, ctype []string, text string) {
	h := rw.Header()
	h["Content-Type"] = ctype
	h["X-Content-Type-Options"] = []string{"nosniff"}
	rw.WriteHeader(status)
	if text != "" {
		rw.Write([]byte(text))
	}
}

// render fills in the values that are echoed or signed. value returns the
// i-th of them. It returns errNotSafe unless all of them are of the kind that
// may be.
func (c *challenge) render(e *engine, d *ichido.Delivery, value func(i int) (string, bool)) (string, error) {
	var b strings.Builder
	n := 0
	for _, p := range c.body {
		if p.kind == partLiteral {
			b.WriteString(p.literal)
			continue
		}
		text, found := value(n)
		n++
		if !found || !c.pattern.MatchString(text) {
			return "", errNotSafe
		}
		switch p.kind {
		case partProofHex, partProofBase64:
			proof, live := e.proof(text, d.ReceivedAt)
			if !live {
				return "", errNoLiveSecret
			}
			if p.kind == partProofHex {
				text = hex.EncodeToString(proof)
			} else {
				text = base64.StdEncoding.EncodeToString(proof)
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// reply is a constant answer.
type reply struct {
	status int
	ctype  []string
	body   []byte
}

func newReplies(specs map[string]replySpec) map[string]*reply {
	replies := make(map[string]*reply, len(specs))
	for verdict, spec := range specs {
		replies[verdict] = &reply{spec.Status, []string{spec.ContentType}, []byte(spec.Body)}
	}
	return replies
}

// Acknowledge implements ichido.Acknowledger: it answers as the profile says,
// where it says something.
func (e *engine) Acknowledge(w http.ResponseWriter, verdict, id string) bool {
	r := e.replies[verdict]
	if r == nil {
		return false
	}
	w.Header()["Content-Type"] = r.ctype
	w.WriteHeader(r.status)
	w.Write(r.body)
	return true
}
