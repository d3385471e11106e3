package provider

import (
	"encoding/base64"
	"strings"

	"ichido.dev/ichido"
)

const redacted = `"[redacted]"`

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

// redact returns the body without the secret that a token scheme carries in
// it, or nil where it carries none. What is stored, hashed and handed on is
// this: the digest of a body with a secret in it would change with the secret,
// and would let it be guessed.
func (s *scheme) redact(w *work, d *ichido.Delivery) []byte {
	if s.kind != kindToken {
		return nil
	}
	for _, at := range s.from {
		if at.kind != inJSON {
			continue
		}
		_, m, err := s.bodyMember(w, d, at)
		if err != nil {
			continue
		}
		stored := append([]byte(nil), d.Body[:m.start]...)
		stored = append(stored, redacted...)
		return append(stored, d.Body[m.end:]...)
	}
	return nil
}
