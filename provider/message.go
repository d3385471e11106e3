package provider

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"ichido.dev/ichido"
)

// value reads a header, a query parameter or another place outside the body
// that must occur once. It returns nil for one value, and otherwise why not.
func (s *scheme) value(d *ichido.Delivery, at place) (string, *ichido.Error) {
	switch at.kind {
	case inHeader:
		values := d.Header[at.name]
		if len(values) == 1 {
			return values[0], nil
		}
		if len(values) == 0 {
			return "", errMissing
		}
		return "", errRepeated
	case inQuery:
		return queryValue(d.RawQuery, at.name)
	case inBody:
		return string(d.Body), nil
	}
	return "", errMissing
}

// queryValue reads one parameter of a raw query.
func queryValue(query, name string) (string, *ichido.Error) {
	f, ok := parseForm([]byte(query))
	if !ok {
		return "", errMissing
	}
	value, times := f.value(name)
	switch times {
	case 0:
		return "", errMissing
	case 1:
		return value, nil
	}
	return "", errRepeated
}

// readTime reads a signed time that stands outside the body.
func (s *scheme) readTime(w *work, d *ichido.Delivery) *ichido.Error {
	w.timeText, w.time = "", time.Time{}
	if s.time == nil || s.time.kind == inJSON {
		return nil
	}
	if s.time.kind == inSig {
		text, ok := w.sig.field(s.time.name)
		if !ok {
			return errTimeMissing
		}
		w.timeText = text
	} else {
		text, err := s.value(d, *s.time)
		if err == errMissing {
			return errTimeMissing
		}
		if err != nil {
			return err
		}
		w.timeText = text
	}
	var ok bool
	if w.time, ok = parseTime(w.timeText, s.unit); !ok {
		return errTimeMalformed
	}
	return nil
}

// readBodyTime reads a signed time inside the body, after the signature held.
// Where the body is not signed as a whole the time is, as a text.
func (s *scheme) readBodyTime(w *work, members []member, slot int) *ichido.Error {
	m := members[slot]
	if m.state != memberFound {
		return errTimeMissing
	}
	raw := m.text(w.view)
	if raw[0] == '"' && (s.unit != unitSeconds && s.unit != unitMillis || !s.bound) {
		raw = raw[1 : len(raw)-1]
	}
	var ok bool
	if w.time, ok = parseTime(string(raw), s.unit); !ok {
		return errTimeMalformed
	}
	return nil
}

// append renders a part of the signed message.
func (s *scheme) append(b []byte, t template, w *work, d *ichido.Delivery) ([]byte, *ichido.Error) {
	for i := range t {
		p := &t[i]
		switch p.kind {
		case partLiteral:
			b = append(b, p.literal...)
		case partTime:
			b = append(b, w.timeText...)
		case partMethod:
			b = append(b, d.Method...)
		case inJSON:
			text, _, err := s.bodyMember(w, d, p.places[0])
			if err != nil || !validText(text) {
				return b, errMalformed
			}
			b = append(b, text...)
		case partDigest:
			var ok bool
			if b, ok = filters[p.name](b, d.Body); !ok {
				return b, errMismatch
			}
		case inSig:
			text, ok := w.sig.field(p.places[0].name)
			if !ok {
				return b, errMalformed
			}
			b = append(b, text...)
		case inHeader:
			text, err := s.value(d, p.places[0])
			if err == errMissing {
				return b, errHeaderMissing
			}
			if err != nil {
				return b, err
			}
			if !validSignedHeader(text, t, i) {
				return b, errIDMalformed
			}
			b = append(b, text...)
		}
	}
	return b, nil
}

// validSignedHeader refuses a header value that could be split from what
// follows it in more than one way, or that no sender would write.
func validSignedHeader(text string, t template, i int) bool {
	if !validID(text) {
		return false
	}
	return i+1 >= len(t) || t[i+1].kind != partLiteral || !strings.Contains(text, t[i+1].literal)
}

const maxID = 256 // bytes

// validText reports whether text from a body can be an id or a part of a key:
// 1 to 256 bytes that can be shown, in any script.
func validText(text string) bool {
	if text == "" || len(text) > maxID || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !unicode.IsGraphic(r) {
			return false
		}
	}
	return true
}

// validID reports whether text can be an id: 1 to 256 printable ASCII
// characters without white space.
func validID(text string) bool {
	if text == "" || len(text) > maxID {
		return false
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
