package provider

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"time"

	"ichido.dev/ichido"
)

// check judges the claims of a token that verified.
func (r *jwtRule) check(w *work, d *ichido.Delivery) error {
	members := make([]member, r.times.paths)
	if r.times.read(&w.scanner, w.token, members) != envelopeObject {
		return errMalformed
	}
	for i, name := range r.names {
		if !claimHolds(w.token, members[3+i], r.claims[name]) {
			if name == "aud" {
				return errAudience
			}
			return errClaim
		}
	}
	if err := r.checkBindings(w, members[3+len(r.names):], d); err != nil {
		return err
	}
	if err := r.checkTimes(w, members, d.ReceivedAt); err != nil {
		return err
	}
	return r.checkHeader(d)
}

// claimHolds reports whether a claim is exactly want, or a list that has it.
func claimHolds(token []byte, m member, want string) bool {
	if m.state != memberFound || want == "" {
		return false
	}
	raw := m.text(token)
	if text, ok := unquote(raw); ok {
		return text == want
	}
	scanner := new(jsonScanner)
	scanner.reset(raw)
	if open, err := scanner.decoder.ReadToken(); err != nil || open.Kind() != '[' {
		return false
	}
	for scanner.decoder.PeekKind() == '"' {
		item, err := scanner.decoder.ReadToken()
		if err != nil {
			return false
		}
		if item.String() == want {
			return true
		}
	}
	return false
}

func (r *jwtRule) checkTimes(w *work, members []member, now time.Time) error {
	exp, hasExp, okExp := claimTime(w.token, members[0])
	nbf, hasNbf, okNbf := claimTime(w.token, members[1])
	iat, hasIat, okIat := claimTime(w.token, members[2])
	if !okExp || !okNbf || !okIat {
		return errMalformed
	}
	switch {
	case !hasExp && !r.unending && (r.iatLimit == 0 || !hasIat):
		return errExpired // a token that never ends is refused
	case hasExp && !now.Before(exp.Add(r.leeway)):
		return errExpired
	case hasNbf && now.Before(nbf.Add(-r.leeway)):
		return errNotYetValid
	case hasIat && now.Before(iat.Add(-max(r.leeway, r.tolerance, time.Minute))):
		return errNotYetValid
	}
	if hasIat {
		w.time = iat
	}
	if !hasExp && !r.unending {
		return fresh(iat, now, unitSeconds, r.iatLimit)
	}
	return nil
}

// claimTime reads a time claim: whole seconds, or seconds with a fraction
// that is dropped.
func claimTime(token []byte, m member) (t time.Time, present, ok bool) {
	if m.state == memberMissing {
		return t, false, true
	}
	if m.state != memberFound {
		return t, true, false
	}
	whole, fraction, _ := strings.Cut(string(m.text(token)), ".")
	if strings.Trim(fraction, "0123456789") != "" {
		return t, true, false
	}
	n, valid := parseDigits(whole, 1, 11)
	return time.Unix(n, 0), true, valid
}

// checkHeader judges a time outside the token. It proves nothing, for it is
// not signed; an old one is refused all the same.
func (r *jwtRule) checkHeader(d *ichido.Delivery) error {
	if r.header == nil {
		return nil
	}
	values := d.Header[r.header.name]
	switch {
	case len(values) == 0:
		return errTimeMissing
	case len(values) > 1:
		return errRepeated
	}
	t, ok := parseTime(values[0], r.unit)
	if !ok {
		return errTimeMalformed
	}
	return fresh(t, d.ReceivedAt, r.unit, r.tolerance)
}

// checkBindings judges the claims that bind the token to the request.
func (r *jwtRule) checkBindings(w *work, members []member, d *ichido.Delivery) error {
	if h := r.bodyHash; h != nil {
		absent := h.EmptyOK && len(d.Body) == 0 && members[0].state == memberMissing
		if !absent && !h.matches(w, members[0], d.Body) {
			return errBodyHash
		}
		members = members[1:]
	}
	if r.urlHash != nil {
		if !r.urlHash.matches(w, members[0], []byte(r.url)) {
			return errURLHash
		}
		members = members[1:]
	}
	if r.bodyClaim == "" {
		return nil
	}
	text, state := memberText(w.token, members[0], false)
	if state != valueFound || subtle.ConstantTimeCompare([]byte(text), d.Body) != 1 {
		return errBodyHash
	}
	return nil
}

// matches reports whether a claim holds the digest of a text.
func (h *bodyHashSpec) matches(w *work, m member, of []byte) bool {
	if m.state != memberFound {
		return false
	}
	text, ok := unquote(m.text(w.token))
	if !ok {
		return false
	}
	g := grammar{encoding: h.Encoding, size: sha256.Size}
	n, ok := g.decode(w.macs[0][:], &w.text, text)
	digest := sha256.Sum256(of)
	return ok && subtle.ConstantTimeCompare(digest[:], w.macs[0][:n]) == 1
}
