package provider

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Grammars of signature headers.
const (
	grammarRaw        = "raw"        // the signature alone
	grammarList       = "list"       // several signatures
	grammarPositional = "positional" // values known by their position
	grammarKV         = "kv"         // t=...,v1=...
	grammarTagged     = "tagged"     // v1,... v1,...
)

// Encodings of signatures.
const (
	encodingHex       = "hex"
	encodingBase64    = "base64"
	encodingBase64URL = "base64url"
	encodingB64OfHex  = "base64-of-hex"
)

// Bounds on what one signature header may hold. More is refused, so that the
// work per request has a bound.
const (
	maxHeaderValue = 8 << 10
	maxElements    = 32
	maxCandidates  = 8

	// Of public-key signatures, each of which is checked with every key over
	// the whole body.
	maxPublicCandidates = 4

	maxSignature = 512 // bytes, decoded: RSA of 4096 bits
)

// grammar reads the value of a signature header.
type grammar struct {
	kind      string
	separator string // between elements
	assign    string // between name and value, split once
	group     string // between groups of elements
	names     []string
	prefix    string
	prefixCI  bool
	encoding  string
	lowerCase bool // hex in lower case only
	size      int  // of the decoded signature in bytes, 0 when it varies
	skip      int  // positional: bits set for positions that are not signatures
}

// field is another value in a signature header.
type field struct{ name, value string }

// signature is what one signature header value, or one group in it, holds.
type signature struct {
	candidates [maxCandidates]string // encoded
	n          int
	fields     [maxElements]field
	nfields    int
}

func (s *signature) add(candidate string) bool {
	if s.n == maxCandidates {
		return false
	}
	s.candidates[s.n] = candidate
	s.n++
	return true
}

// field returns another value of the header. It must occur once.
func (s *signature) field(name string) (string, bool) {
	value, seen := "", false
	for _, f := range s.fields[:s.nfields] {
		if f.name == name {
			if seen {
				return "", false
			}
			value, seen = f.value, true
		}
	}
	return value, seen
}

// fits reports whether a value has the shape of this grammar: whether one of
// its signatures could be in it. It chooses between the variants that read
// the same header.
func (g *grammar) fits(value string) bool {
	if g.kind != grammarTagged {
		return true
	}
	for rest, more := value, true; more; {
		var element string
		element, rest, more = strings.Cut(rest, g.separator)
		if tag, _, found := strings.Cut(element, g.assign); found && slices.Contains(g.names, tag) {
			return true
		}
	}
	return false
}

// parse reads one value, or one group of it, into s, adding to what is there.
// It reports whether the value is within the grammar.
func (g *grammar) parse(value string, s *signature) bool {
	if len(value) > maxHeaderValue {
		return false
	}
	if g.kind == grammarRaw {
		candidate, ok := g.cutPrefix(value)
		return ok && s.add(candidate)
	}
	for n, rest, more := 0, value, true; more; n++ {
		var element string
		element, rest, more = strings.Cut(rest, g.separator)
		if n == maxElements || !g.element(n, element, s) {
			return false
		}
	}
	return true
}

func (g *grammar) element(n int, element string, s *signature) bool {
	switch g.kind {
	case grammarList:
		candidate, ok := g.cutPrefix(strings.Trim(element, " "))
		return ok && s.add(candidate)
	case grammarPositional:
		if g.skip&(1<<n) == 0 {
			return s.add(element)
		}
		return s.addField(positions[n], element)
	case grammarKV:
		name, value, found := strings.Cut(strings.Trim(element, " "), g.assign)
		if !found {
			return true // an unknown element is ignored, like an unknown name
		}
		if slices.Contains(g.names, name) {
			return s.add(value)
		}
		return s.addField(name, value)
	default: // tagged
		tag, value, found := strings.Cut(element, g.assign)
		if found && slices.Contains(g.names, tag) {
			return s.add(value)
		}
		return true
	}
}

func (s *signature) addField(name, value string) bool {
	if s.nfields == maxElements {
		return false
	}
	s.fields[s.nfields] = field{name, value}
	s.nfields++
	return true
}

func (g *grammar) cutPrefix(value string) (string, bool) {
	if g.prefixCI && len(value) >= len(g.prefix) && strings.EqualFold(value[:len(g.prefix)], g.prefix) {
		return value[len(g.prefix):], true
	}
	return strings.CutPrefix(value, g.prefix)
}

// decode decodes a candidate into dst, which has room for maxSignature bytes,
// and returns how many bytes it is. scratch is used for the encoded bytes. It
// is strict: one spelling per value, but for the case of hexadecimal digits.
func (g *grammar) decode(dst []byte, scratch *[]byte, candidate string) (int, bool) {
	if len(candidate) == 0 || len(candidate) > 2*maxSignature {
		return 0, false
	}
	src := append((*scratch)[:0], candidate...)
	*scratch = src
	n, ok := 0, false
	switch g.encoding {
	case encodingHex:
		n, ok = decodeHex(dst, src, g.lowerCase)
	case encodingBase64:
		n, ok = decodeBase64(strictBase64, dst, src)
	case encodingBase64URL:
		if src[len(src)-1] == '=' {
			n, ok = decodeBase64(strictPaddedURL, dst, src)
		} else {
			n, ok = decodeBase64(strictURL, dst, src)
		}
	case encodingB64OfHex:
		var text [2 * maxSignature]byte
		if n, ok = decodeBase64(strictBase64, text[:], src); ok {
			n, ok = decodeHex(dst, text[:n], g.lowerCase)
		}
	}
	return n, ok && n > 0 && (g.size == 0 || n == g.size)
}

var (
	strictBase64    = base64.StdEncoding.Strict()
	strictURL       = base64.RawURLEncoding.Strict()
	strictPaddedURL = base64.URLEncoding.Strict()
)

// decodeBase64 decodes src only if it is the one text that encodes what it
// decodes to: the decoder alone would skip line breaks.
func decodeBase64(enc *base64.Encoding, dst, src []byte) (int, bool) {
	if enc.DecodedLen(len(src)) > len(dst) {
		return 0, false
	}
	n, err := enc.Decode(dst, src)
	return n, err == nil && enc.EncodedLen(n) == len(src)
}

func decodeHex(dst, src []byte, lowerCase bool) (int, bool) {
	if len(src)%2 != 0 || hex.DecodedLen(len(src)) > len(dst) {
		return 0, false
	}
	if lowerCase {
		for _, c := range src {
			if c >= 'A' && c <= 'F' {
				return 0, false
			}
		}
	}
	n, err := hex.Decode(dst, src)
	return n, err == nil
}

// format writes a signature header value as a sender does. fields are the
// other values, in order; tag names the signature.
func (g *grammar) format(mac []byte, fields []field) string {
	text := g.encode(mac)
	switch g.kind {
	case grammarKV:
		var b strings.Builder
		for _, f := range fields {
			b.WriteString(f.name + g.assign + f.value + g.separator)
		}
		return b.String() + g.names[0] + g.assign + text
	case grammarTagged:
		return g.names[0] + g.assign + text
	case grammarPositional:
		var b strings.Builder
		for _, f := range fields {
			b.WriteString(f.value + g.separator)
		}
		return b.String() + text
	default:
		return g.prefix + text
	}
}

func (g *grammar) encode(mac []byte) string {
	switch g.encoding {
	case encodingBase64:
		return base64.StdEncoding.EncodeToString(mac)
	case encodingBase64URL:
		return base64.RawURLEncoding.EncodeToString(mac)
	case encodingB64OfHex:
		return base64.StdEncoding.EncodeToString([]byte(hex.EncodeToString(mac)))
	default:
		return hex.EncodeToString(mac)
	}
}

// positions are the names of positional fields.
var positions = func() (names [maxElements]string) {
	for n := range names {
		names[n] = fmt.Sprint(n)
	}
	return names
}()
