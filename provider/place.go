package provider

import (
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// Kinds of places that a value is read from.
const (
	inHeader = "header"
	inSig    = "sig" // another field of the signature header
	inJSON   = "json"
	inForm   = "form"
	inQuery  = "query"
	inClaim  = "claim" // of a JWT
	inBasic  = "basic" // user:password of the Authorization header
	inBody   = "body"  // the whole body
)

// place is where a value is read from: "header:X-Name", "json:a.b". It is
// written as one text in profiles.
type place struct {
	kind string
	name string   // canonical for headers; with its dots for JSON
	path []string // of a JSON member or a claim
}

func (p place) String() string {
	if p.name == "" {
		return p.kind
	}
	return p.kind + ":" + p.name
}

// parsePlaces reads a place, or several alternatives of one kind
// ("header:A,B"), of which the first that is present counts.
func parsePlaces(text string) ([]place, error) {
	kind, names, found := strings.Cut(text, ":")
	if kind == inBasic || kind == inBody {
		if found {
			return nil, fmt.Errorf("place %q takes no name", kind)
		}
		return []place{{kind: kind}}, nil
	}
	if !found || names == "" {
		return nil, fmt.Errorf("place %q is not of the form kind:name", text)
	}
	var places []place
	for name := range strings.SplitSeq(names, ",") {
		p, err := parsePlace(kind, name)
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	return places, nil
}

func parsePlace(kind, name string) (place, error) {
	p := place{kind: kind, name: name}
	switch kind {
	case inHeader:
		if !validToken(name) {
			return p, fmt.Errorf("header name %q is not one", name)
		}
		p.name = textproto.CanonicalMIMEHeaderKey(name)
	case inJSON, inClaim:
		p.path = strings.Split(name, ".")
		if slices.Contains(p.path, "") || len(p.path) > 4 {
			return p, fmt.Errorf("member path %q is not one to four names with dots between", name)
		}
	case inSig, inForm, inQuery:
		if !validToken(name) {
			return p, fmt.Errorf("name %q in place %q is not one", name, kind)
		}
	default:
		return p, fmt.Errorf("place %q is unknown: use header, sig, json, form, query, claim, basic or body", kind)
	}
	return p, nil
}

// position returns the number of a positional field ("sig:0"), or false.
func (p place) position() (int, bool) {
	n, err := strconv.Atoi(p.name)
	return n, err == nil && n >= 0 && n < maxElements
}

// validToken reports whether name is a token of RFC 9110, as header names are.
func validToken(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return true
}
