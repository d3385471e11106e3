package provider

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"ichido.dev/ichido"
)

// challenge is a handshake, compiled.
type challenge struct {
	members *envelope // those of when, then those that are echoed
	values  []string  // of the members of when, as JSON or as text
	unless  bool      // the member after those must be missing
	pattern *regexp.Regexp
	status  int
	ctype   []string
	body    template
	hint    []byte // a value that the body of every such handshake holds
}

// newChallenge compiles a handshake that was checked.
func newChallenge(spec challengeSpec) *challenge {
	c := &challenge{status: spec.Reply.Status, ctype: []string{spec.Reply.ContentType}}
	var paths [][]string
	for from, value := range spec.When {
		places, _ := parsePlaces(from)
		paths = append(paths, places[0].path)
		c.values = append(c.values, value)
		if len(value) > len(c.hint) {
			c.hint = []byte(value)
		}
	}
	if c.unless = spec.Unless != ""; c.unless {
		places, _ := parsePlaces(spec.Unless)
		paths = append(paths, places[0].path)
	}
	c.body, _ = parseTemplate(spec.Reply.Body)
	for _, p := range c.body {
		if p.kind == inJSON {
			paths = append(paths, p.places[0].path)
		}
	}
	c.members = newEnvelope(paths)
	if spec.Pattern != "" {
		c.pattern = regexp.MustCompile(spec.Pattern)
	}
	return c
}

// Challenge implements ichido.Challenger. All handshakes of the profiles are
// signed, and answered only then.
func (e *engine) Challenge(rw http.ResponseWriter, d *ichido.Delivery, verified bool) bool {
	if !verified || d.Method != http.MethodPost && d.Method != "" {
		return false
	}
	for _, c := range e.challenges {
		if !bytes.Contains(d.Body, c.hint) {
			continue
		}
		w := e.work.Get().(*work)
		answered := c.answer(rw, w, d.Body)
		w.scanner.release()
		e.release(w)
		if answered {
			return true
		}
	}
	return false
}

// answer writes the answer if body is this handshake.
func (c *challenge) answer(rw http.ResponseWriter, w *work, body []byte) bool {
	members := make([]member, c.members.paths)
	if c.members.read(&w.scanner, body, members) != envelopeObject {
		return false
	}
	for i, want := range c.values {
		text, state := memberText(body, members[i], true)
		if state != valueFound || text != want {
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
	text, safe := c.render(body, echoed)
	h := rw.Header()
	h["Content-Type"] = c.ctype
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if !safe {
		h["Content-Type"] = []string{"text/plain; charset=utf-8"}
		rw.WriteHeader(http.StatusBadRequest)
		return true
	}
	rw.WriteHeader(c.status)
	if text != "" {
		rw.Write([]byte(text))
	}
	return true
}

// render fills in the echoed values. It reports whether all of them are of
// the kind that may be echoed.
func (c *challenge) render(body []byte, echoed []member) (string, bool) {
	var b strings.Builder
	for _, p := range c.body {
		if p.kind == partLiteral {
			b.WriteString(p.literal)
			continue
		}
		text, state := memberText(body, echoed[0], false)
		echoed = echoed[1:]
		if state != valueFound || !c.pattern.MatchString(text) {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
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
