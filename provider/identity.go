package provider

import (
	"crypto/sha256"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"ichido.dev/ichido"
)

const maxType = 128 // bytes of an event type

// ref is a place with, for members, the slot it is read into.
type ref struct {
	place
	slot   int
	signed bool
}

// keyPart is a piece of a compiled key template.
type keyPart struct {
	literal  string
	refs     []ref // alternatives; none for a literal
	optional bool
	before   string // the literal before it, which its value must not hold
}

// identity says how the events of one scheme are identified.
type identity struct {
	members  *envelope
	claims   *envelope
	always   bool // members are read on every request
	form     bool // bodies may be forms
	timeSlot int  // of a signed time in the body, -1 for none

	ids        []ref
	types      []ref
	action     int // slot, -1 for none; for the policy
	repository int
	need       []ref

	key             []keyPart // where there is no id
	keyIf           int       // slot of the member that it needs, -1 for none
	keyFirst        bool      // the operator's template comes before the id
	keyMode         string
	fingerprintKey  bool
	fingerprint     []string // members, as slots fingerprintSlots
	fingerprintSlot []int
}

// What became of a value.
const (
	valueMissing = iota
	valueFound
	valueShape     // something else than text
	valueAmbiguous // more than once
)

// read parses the JSON view of the body and reads the members from it, once
// per delivery.
func (id *identity) read(w *work, d *ichido.Delivery) int {
	if !w.parsed {
		w.parsed, w.envelope = true, id.parse(w, d)
	}
	return w.envelope
}

func (id *identity) parse(w *work, d *ichido.Delivery) int {
	if len(w.members) < id.members.paths {
		w.members = make([]member, id.members.paths)
	}
	w.members = w.members[:cap(w.members)][:id.members.paths]
	if w.view == nil {
		w.view = d.Readable()
	}
	if id.form && isForm(w.view) {
		clear(w.members)
		f, ok := parseForm(cutBOM(w.view))
		payload, one := f.unwrap()
		w.form = f
		if !ok || !one {
			return envelopeInvalid
		}
		if payload == nil {
			w.opaque = true
			return envelopeObject
		}
		w.view = payload
	}
	return id.members.read(&w.scanner, w.view, w.members)
}

// value reads the text of a place in a delivery that verified. Whole numbers
// are taken as they are written, where numbers are allowed.
func (id *identity) value(w *work, d *ichido.Delivery, r ref, numbers bool) (string, int) {
	switch r.kind {
	case inHeader:
		values := d.Header[r.name]
		switch len(values) {
		case 0:
			return "", valueMissing
		case 1:
			return values[0], valueFound
		}
		return "", valueAmbiguous
	case inForm:
		value, times := w.form.value(r.name)
		switch times {
		case 0:
			return "", valueMissing
		case 1:
			return value, valueFound
		}
		return "", valueAmbiguous
	case inClaim:
		return memberText(w.token, w.claims[r.slot], numbers)
	}
	return memberText(w.view, w.member(r.slot), numbers)
}

func memberText(view []byte, m member, numbers bool) (string, int) {
	switch m.state {
	case memberMissing:
		return "", valueMissing
	case memberShape:
		return "", valueShape
	case memberAmbiguous:
		return "", valueAmbiguous
	}
	raw := m.text(view)
	switch {
	case raw[0] == '"':
		if text, ok := unquote(raw); ok {
			return text, valueFound
		}
	case string(raw) == "null":
		return "", valueMissing
	case numbers && isInteger(raw):
		return string(raw), valueFound
	}
	return "", valueShape
}

func isInteger(raw []byte) bool {
	return strings.Trim(strings.TrimPrefix(string(raw), "-"), "0123456789") == ""
}

// unquote returns the text of a JSON string.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if strings.IndexByte(string(inner), '\\') < 0 {
		return string(inner), true
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err == nil
}

// identify fills in what a verified delivery is.
func (e *engine) identify(w *work, d *ichido.Delivery, s *scheme, p *ichido.Proof) error {
	id := s.identity
	p.Time = w.time
	body := d.Body
	stored, err := s.redact(w, d)
	if err != nil {
		return err
	}
	if stored != nil {
		p.Stored, body, w.view = stored, stored, stored
	}
	e.fingerprint(w, s, body, p)
	envelope := envelopeObject
	if id.always {
		envelope = id.read(w, d)
	}
	if envelope == envelopeInvalid {
		p.Unreadable = "not JSON"
	}
	if err := e.eventType(w, d, id, p); err != nil {
		return err
	}
	if p.Unreadable == "" {
		e.needed(w, d, id, p)
	}
	if p.Unreadable == "" && p.Ignored == "" {
		e.identityOf(w, d, s, body, p)
	}
	if p.Unreadable == "" && p.Ignored == "" {
		e.policy.judge(w, id, p)
	}
	if p.Unreadable != "" || p.Ignored != "" {
		p.Key = ""
	}
	return nil
}

// fingerprint is over the body where the signature covers it (a retry is
// signed anew with another time, and must not be a conflict), else over what
// was signed.
func (e *engine) fingerprint(w *work, s *scheme, body []byte, p *ichido.Proof) {
	if s.bound || s.kind == kindToken || s.kind == kindNone {
		p.Fingerprint = sha256.Sum256(body)
		return
	}
	p.Fingerprint = s.signedDigest(w, body)
}

// signedDigest is the SHA-256 of the signed bytes.
func (s *scheme) signedDigest(w *work, body []byte) [sha256.Size]byte {
	if s.kind == kindJWT {
		return w.signedHash
	}
	if w.digest == nil {
		w.digest = sha256.New()
	}
	w.digest.Reset()
	w.digest.Write(w.head)
	if s.body {
		w.digest.Write(body)
	}
	w.digest.Write(w.tail)
	w.sum = w.digest.Sum(w.sum[:0])
	return [sha256.Size]byte(w.sum)
}

// eventType reads the type: the sender's word for it and nothing more, so that
// one kind of event has one type, whatever else a configuration has read. A
// header is refused when it could be read in two ways; a member makes the body
// unreadable.
func (e *engine) eventType(w *work, d *ichido.Delivery, id *identity, p *ichido.Proof) error {
	for _, r := range id.types {
		if r.kind != inHeader && (p.Unreadable != "" || !id.always) {
			continue
		}
		text, state := id.value(w, d, r, true)
		if state == valueMissing || state == valueFound && text == "" {
			continue
		}
		if r.kind == inHeader && state == valueAmbiguous {
			return errRepeated
		}
		valid := state == valueFound && printable(text, maxType)
		if r.kind == inHeader && id.action >= 0 && strings.Contains(text, ".") {
			valid = false // an action is read from the body, which is signed
		}
		if !valid && r.kind == inHeader {
			return errTypeMalformed
		}
		if state == valueAmbiguous {
			p.Unreadable = "type twice"
			return nil
		}
		if !valid {
			continue // of another shape: not this sender's type
		}
		p.Type, p.TypeSigned = text, r.signed
		break
	}
	return nil
}

// member returns a member, or a missing one where the body has no JSON view.
func (w *work) member(slot int) member {
	if w.opaque || slot >= len(w.members) {
		return member{}
	}
	return w.members[slot]
}

// needed ignores a body that lacks what there would be to act on.
func (e *engine) needed(w *work, d *ichido.Delivery, id *identity, p *ichido.Proof) {
	if len(id.need) == 0 {
		return
	}
	for _, r := range id.need {
		text, state := id.value(w, d, r, false)
		switch {
		case state == valueAmbiguous:
			p.Unreadable = "a member twice"
			return
		case state == valueShape:
			p.Ignored = "unexpected shape"
			return
		case state == valueFound && text != "":
			return
		}
	}
	p.Ignored = "nothing to act on"
}
