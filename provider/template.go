package provider

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kinds of template parts besides the places of place.go.
const (
	partLiteral = ""
	partBody    = inBody
	partTime    = "ts"
	partConfig  = "config"
	partMethod  = "method"
	partKey     = "key" // first or last, of a plain digest of the secret and the rest

	// In the answer to a handshake: the MAC of a value under the source's key.
	partProofHex    = "mac-hex"
	partProofBase64 = "mac-base64"
)

// part is a piece of a template: literal text, or a placeholder.
type part struct {
	kind     string
	literal  string
	name     string  // of a config value
	places   []place // alternatives: the first that is present counts
	optional bool    // "{json:a?}": may be missing
}

// template is a text with placeholders, "{ts}.{body}". A literal { or [ is
// doubled; [ is kept for groups that may be left out.
type template []part

const maxTemplate = 512 // bytes of template text

func parseTemplate(text string) (template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("template is longer than %d bytes", maxTemplate)
	}
	var t template
	var literal strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		if c != '{' && c != '[' {
			literal.WriteByte(c)
			i++
			continue
		}
		if i+1 < len(text) && text[i+1] == c {
			literal.WriteByte(c)
			i += 2
			continue
		}
		if c == '[' {
			return nil, errors.New("template: '[' must be doubled: groups that may be left out are not supported")
		}
		name, _, found := strings.Cut(text[i+1:], "}")
		if !found {
			return nil, errors.New("template: '{' without '}'; double a literal '{'")
		}
		p, err := parsePart(name)
		if err != nil {
			return nil, err
		}
		t = appendLiteral(t, &literal)
		t = append(t, p)
		i += len(name) + 2
	}
	return appendLiteral(t, &literal), nil
}

func appendLiteral(t template, b *strings.Builder) template {
	if b.Len() == 0 {
		return t
	}
	t = append(t, part{kind: partLiteral, literal: b.String()})
	b.Reset()
	return t
}

func parsePart(text string) (part, error) {
	name, optional := strings.CutSuffix(text, "?")
	p := part{optional: optional}
	kind, rest, _ := strings.Cut(name, ":")
	switch {
	case name == partBody || name == partTime || name == partMethod || name == partKey:
		p.kind = name
	case strings.HasPrefix(name, partDigest):
		filter := strings.TrimPrefix(name, partDigest)
		if filters[filter] == nil {
			return p, fmt.Errorf("placeholder {%s} has an unknown filter: use %s", text, strings.Join(slices.Sorted(maps.Keys(filters)), ", "))
		}
		p.kind, p.name = partDigest, filter
	case kind == partConfig:
		if !validToken(rest) {
			return p, fmt.Errorf("placeholder {%s} names no setting", text)
		}
		p.kind, p.name = partConfig, rest
	case kind == partProofHex || kind == partProofBase64:
		places, err := parsePlaces(rest)
		if err != nil || len(places) != 1 || optional {
			return p, fmt.Errorf("placeholder {%s} must name one place", text)
		}
		p.kind, p.places = kind, places
	case kind == inHeader || kind == inSig || kind == inJSON || kind == inForm || kind == inClaim || kind == inQuery:
		places, err := parsePlaces(name)
		if err != nil {
			return p, fmt.Errorf("placeholder {%s}: %w", text, err)
		}
		p.kind, p.places = kind, places
	default:
		return p, fmt.Errorf("placeholder {%s} is unknown", text)
	}
	if optional && (p.kind == partMethod || p.kind == partKey || p.kind == partBody || p.kind == partDigest || p.kind == partTime || p.kind == partConfig) {
		return p, fmt.Errorf("placeholder {%s} cannot be optional", text)
	}
	return p, nil
}

// String writes the template as it is parsed.
func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		switch p.kind {
		case partLiteral:
			b.WriteString(strings.NewReplacer("{", "{{", "[", "[[").Replace(p.literal))
			continue
		case partBody, partTime, partMethod, partKey:
			b.WriteString("{" + p.kind)
		case partDigest:
			b.WriteString("{" + partDigest + p.name)
		case partProofHex, partProofBase64:
			b.WriteString("{" + p.kind + ":" + p.places[0].String())
		case partConfig:
			b.WriteString("{config:" + p.name)
		default:
			b.WriteString("{" + p.kind + ":")
			for i, alternative := range p.places {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(alternative.name)
			}
		}
		if p.optional {
			b.WriteByte('?')
		}
		b.WriteByte('}')
	}
	return b.String()
}

// has reports whether a placeholder of a kind occurs.
func (t template) has(kind string) bool {
	return slices.ContainsFunc(t, func(p part) bool { return p.kind == kind })
}

// covers reports whether the value at a place is part of the text.
func (t template) covers(at place) bool {
	for _, p := range t {
		for _, covered := range p.places {
			if covered.kind == at.kind && covered.name == at.name {
				return true
			}
		}
	}
	return false
}

// coversText is covers for a place as it is written.
func (t template) coversText(text string) bool {
	places, err := parsePlaces(text)
	return err == nil && t.covers(places[0])
}

// withSettings replaces the config placeholders by their values, and merges
// the literals that then touch.
func (t template) withSettings(settings map[string]string) template {
	var out template
	for _, p := range t {
		if p.kind == partConfig {
			p = part{kind: partLiteral, literal: settings[p.name]}
		}
		if last := len(out) - 1; p.kind == partLiteral && last >= 0 && out[last].kind == partLiteral {
			out[last].literal += p.literal
			continue
		}
		out = append(out, p)
	}
	return out
}

// alternative returns the template with the i-th of the alternatives of each
// of its header placeholders.
func (t template) alternative(i int) template {
	out := slices.Clone(t)
	for n, p := range out {
		if p.kind == inHeader && len(p.places) > 1 {
			out[n].places = p.places[i : i+1]
		}
	}
	return out
}
