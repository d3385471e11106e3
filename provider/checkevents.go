package provider

import (
	"slices"
	"strings"
)

// signed reports whether the proof of the variant covers the value at a
// place. Who knows the token of a token scheme vouches for the whole request,
// but a token in the body identifies nothing: it is replaced before it is read.
func (v *variantSpec) signed(at place) bool {
	msg, _ := parseTemplate(v.Msg)
	switch {
	case v.Kind == kindToken || v.Kind == kindNone:
		return at.inBody() && !v.holdsToken(at)
	case at.inBody():
		return v.Kind != kindJWT && (msg.bindsBody() || msg.covers(at)) || v.bodyInToken()
	case at.kind == inClaim:
		return v.Kind == kindJWT
	case at.kind == inHeader:
		return v.Kind != kindJWT && msg.covers(at)
	}
	return false
}

// delimited reports whether a value in the signed message ends at a literal,
// so that no bytes of it can be moved into what follows.
func (v *variantSpec) delimited(at place) bool {
	msg, _ := parseTemplate(v.Msg)
	for i, p := range msg {
		if p.kind != inHeader && p.kind != inJSON || !(template{p}).covers(at) {
			continue
		}
		left := i == 0 || msg[i-1].kind == partLiteral
		right := i == len(msg)-1 || msg[i+1].kind == partLiteral
		if !left || !right {
			return false
		}
	}
	return true
}

// checkEvents refuses an identity that the proof does not cover.
func (v *variantSpec) checkEvents(p *problems) {
	e := v.Events
	for _, from := range e.ID {
		places, err := parsePlaces(from)
		if err != nil {
			p.add("events.id: %w", err)
			continue
		}
		for _, at := range places {
			if !v.signed(at) {
				p.add("events.id: %s is not covered by the signature: a replay under another value would be another event", at)
			} else if (at.kind == inHeader || at.kind == inJSON) && !v.delimited(at) {
				p.add("events.id: %s touches another placeholder in msg: its bytes could be moved", at)
			}
		}
	}
	for _, from := range e.Type {
		checkPlace(p, "events.type", from, inHeader, inJSON, inForm, inClaim)
	}
	for _, from := range []string{e.Action, e.Repository} {
		if from != "" {
			checkPlace(p, "events.action and repository", from, inJSON)
		}
	}
	if e.KeyIf != "" {
		checkPlace(p, "events.key_if", e.KeyIf, inJSON)
	}
	if e.Need != "" {
		checkPlace(p, "events.need", e.Need, inJSON)
	}
	switch e.Key {
	case keyBody:
		if v.strength() != "verified" && v.Kind != kindToken && v.Kind != kindNone {
			p.add("events.key: the body is not covered by the signature: use \"signed\"")
		}
	case keySigned, "":
	default:
		if _, err := v.parseKey(e.Key); err != nil {
			p.add("events.key: %w", err)
		}
	}
	if e.Fingerprint != "" && e.Fingerprint != keyKey {
		p.add("events.fingerprint must be %q or left out", keyKey)
	}
	if e.Key == "" && len(e.ID) == 0 {
		p.add("events names neither an id nor a key: nothing would identify an event")
	}
}

// parseKey reads a template for keys: every placeholder is signed, and text
// stands between any two, so that two pairs of values never make one key.
func (v *variantSpec) parseKey(text string) (template, error) {
	var p problems
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	placeholders := 0
	for i, part := range t {
		if part.kind == partLiteral {
			continue
		}
		placeholders++
		if !slices.Contains([]string{inJSON, inForm, inHeader, inClaim}, part.kind) {
			p.add("placeholder {%s} cannot identify an event", part.kind)
		}
		for _, at := range part.places {
			if !v.signed(at) {
				p.add("%s is not covered by the signature", at)
			}
		}
		if i > 0 && t[i-1].kind != partLiteral {
			p.add("two placeholders touch: put text between them")
		}
	}
	if placeholders == 0 {
		p.add("the template has no placeholder: all events would be one")
	}
	return t, p.join()
}

// describe fills in what follows from the scheme.
func (f *profileFile) describe() {
	for i := range f.Verify {
		v := &f.Verify[i]
		d := Variant{
			Name: v.Variant, About: strings.TrimSpace(v.About), Kind: v.Kind, Strength: v.strength(),
			Off: v.Off, KeySet: v.Key.Source == sourceJWKS,
			HasID: len(v.Events.ID) > 0, IDSigned: len(v.Events.ID) > 0 && v.Kind != kindToken,
			TypeSigned: len(v.Events.Type) > 0 && v.Kind != kindToken, TimeSigned: v.TS != nil,
		}
		if v.TS != nil {
			d.Tolerance = v.TS.window()
		}
		for _, from := range v.Events.Type {
			if places, err := parsePlaces(from); err == nil && !v.signed(places[0]) {
				d.TypeSigned = false
			}
		}
		d.TypeFrom = strings.Join(v.Events.Type, ", ")
		f.Variants = append(f.Variants, d)
	}
}
