package provider

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"ichido.dev/ichido"
)

const redacted = "[redacted]"

// inBody reports whether a place is a part of the body.
func (p place) inBody() bool { return p.kind == inJSON || p.kind == inForm }

// checkTokenPlaces refuses a token in the body that may also stand elsewhere:
// what is stored must not hold it, and a place that nobody looked at could.
func (v *variantSpec) checkTokenPlaces(p *problems) {
	v.checkFrom(p, inHeader, inQuery, inJSON, inForm, inBasic)
	count, body := 0, false
	for _, from := range v.From {
		places, _ := parsePlaces(from)
		count += len(places)
		body = body || slices.ContainsFunc(places, place.inBody)
	}
	if body && count > 1 {
		p.add("from: a token in the body must be the only place: it is replaced before the body is stored, and one that is left in another place would not be")
	}
}

// holdsToken reports whether a place is where the token is.
func (v *variantSpec) holdsToken(at place) bool {
	return v.Kind == kindToken && slices.ContainsFunc(v.From, func(from string) bool { return from == at.String() })
}

// tokenValue reads a shared token from the first of its places that is used.
func (s *scheme) tokenValue(w *work, d *ichido.Delivery) (string, *ichido.Error) {
	for _, at := range s.from {
		var value string
		var err *ichido.Error
		if at.kind == inBasic {
			value, err = basicValue(d)
		} else {
			value, err = s.signatureValue(w, d, at)
		}
		if err != errMissing {
			return value, err
		}
	}
	return "", errMissing
}

// basicValue returns "user:password" of HTTP Basic authentication, which is
// what a secret for it looks like.
func basicValue(d *ichido.Delivery) (string, *ichido.Error) {
	values := d.Header["Authorization"]
	switch {
	case len(values) == 0:
		return "", errMissing
	case len(values) > 1:
		return "", errRepeated
	}
	scheme, encoded, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "basic") || len(encoded) > 2*maxSecretBytes {
		return "", errMalformed
	}
	plain, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodedLen(len(plain)) != len(encoded) {
		return "", errMalformed
	}
	return string(plain), nil
}

// redact returns the body without the token that verified in it, or nil where
// the token is not in the body. What is stored, hashed and handed on is this:
// a stored body must hold no secret, and the digest of a body with one would
// change with it and let it be guessed. The rest keeps its bytes.
func (s *scheme) redact(w *work, d *ichido.Delivery) ([]byte, error) {
	if s.kind != kindToken || !s.from[0].inBody() {
		return nil, nil
	}
	if s.from[0].kind == inForm {
		return redactForm(d.Body, s.from[0].name), nil
	}
	_, m, err := s.bodyMember(w, d, s.from[0])
	if err != nil {
		return nil, err
	}
	return slices.Concat(d.Body[:m.start], []byte(`"`+redacted+`"`), d.Body[m.end:]), nil
}

// redactForm replaces the values of a field of a form, however its name is
// escaped.
func redactForm(body []byte, name string) []byte {
	pairs := strings.Split(string(body), "&")
	for i, pair := range pairs {
		field, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(field); err == nil && plain == name {
			pairs[i] = field + "=" + url.QueryEscape(redacted)
		}
	}
	return []byte(strings.Join(pairs, "&"))
}
