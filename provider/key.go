package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"ichido.dev/ichido"
)

// identityOf sets ID, Key and Fingerprint.
func (e *engine) identityOf(w *work, d *ichido.Delivery, s *scheme, body []byte, p *ichido.Proof) {
	id := s.identity
	id.readID(w, d, p)
	if p.Unreadable != "" {
		return
	}
	switch {
	case p.ID != "" && !id.keyFirst:
		p.Key = p.ID
	case id.keyIf >= 0 && w.member(id.keyIf).state == memberMissing:
		p.Unreadable, p.Invalid = "id missing", true
	case len(id.key) > 0:
		id.renderKey(w, d, p)
	case id.keyMode == keyBody:
		if s.bound || s.kind == kindToken || s.kind == kindNone {
			p.Key = hexDigest(p.Fingerprint)
		} else {
			p.Key = hexDigest(sha256.Sum256(body))
		}
	case id.keyMode == keySigned:
		p.Key = hexDigest(s.signedDigest(w, body))
	default:
		p.Unreadable, p.Invalid = "id missing", true
	}
	if p.Unreadable != "" {
		return
	}
	if id.fingerprintKey {
		p.Fingerprint = sha256.Sum256([]byte(p.Key))
	}
	id.memberFingerprint(w, p)
}

func hexDigest(digest [sha256.Size]byte) string {
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], digest[:])
	return string(text[:])
}

// readID reads the first id that is there. An empty one counts as absent.
func (id *identity) readID(w *work, d *ichido.Delivery, p *ichido.Proof) {
	for _, r := range id.ids {
		text, state := id.value(w, d, r, false)
		switch {
		case state == valueMissing || state == valueFound && text == "":
			continue
		case state == valueAmbiguous:
			p.Unreadable = "id twice"
		case state == valueShape || r.kind == inHeader && !validID(text) || !validText(text):
			p.Unreadable, p.Invalid = "id malformed", true
		default:
			p.ID = text
		}
		return
	}
}

// renderKey renders the key template, or says why it cannot.
func (id *identity) renderKey(w *work, d *ichido.Delivery, p *ichido.Proof) {
	var b strings.Builder
	invalid := func(why string) { p.Unreadable, p.Invalid = why, true }
	for i := range id.key {
		part := &id.key[i]
		if len(part.refs) == 0 {
			b.WriteString(part.literal)
			continue
		}
		text, found := "", false
		for _, r := range part.refs {
			value, state := id.value(w, d, r, true)
			if state == valueAmbiguous {
				p.Unreadable = "a member of the key is there twice"
				return
			}
			if state == valueShape {
				invalid("a member of the key has another shape")
				return
			}
			if state == valueFound && value != "" {
				text, found = value, true
				break
			}
		}
		switch {
		case !found && !part.optional:
			invalid("a member of the key is missing")
			return
		case found && (!validText(text) || part.before != "" && strings.Contains(text, part.before)):
			invalid("a member of the key is malformed")
			return
		}
		b.WriteString(text)
	}
	if b.Len() > maxID {
		invalid("key too long")
		return
	}
	p.Key = b.String()
}

// memberFingerprint sets the fingerprint over the members that the operator
// named.
func (id *identity) memberFingerprint(w *work, p *ichido.Proof) {
	if len(id.fingerprint) == 0 {
		return
	}
	values := make([][]byte, len(id.fingerprint))
	for i, slot := range id.fingerprintSlot {
		m := w.member(slot)
		if m.state != memberFound {
			p.Unreadable = "a member of the fingerprint is missing or there twice"
			p.Invalid = m.state == memberMissing
			return
		}
		values[i] = m.text(w.view)
	}
	canonical := canonicalMembers(id.fingerprint, values)
	if canonical == nil {
		p.Unreadable = "a member of the fingerprint is not strict JSON"
		return
	}
	p.Fingerprint = sha256.Sum256(canonical)
}
