package provider

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxCanonicalDepth = 64
	maxPlainDigits    = 400 // numbers with more digits are written with an exponent
)

// canonicalMembers writes the values of named members as one canonical JSON
// object: members in the order of RFC 8785, strings as it writes them, no
// white space. It differs in numbers: they are exact decimal texts, never
// floating point, so that 2^53+1 is not 2^53; and one number has one text, so
// that 1, 1.0 and 10e-1 are the same. It returns nil when a value is not
// strict JSON.
func canonicalMembers(names []string, values [][]byte) []byte {
	fields := make([]canonicalField, len(names))
	for i, name := range names {
		var ok bool
		if fields[i], ok = newCanonicalField(name, values[i], 0); !ok {
			return nil
		}
	}
	return appendFields(nil, fields)
}

// canonicalField is a member with its canonical value.
type canonicalField struct {
	name  string
	order []uint16 // RFC 8785 sorts by UTF-16 code units
	value []byte
}

func newCanonicalField(name string, value []byte, depth int) (canonicalField, bool) {
	text, ok := appendCanonical(nil, value, depth)
	return canonicalField{name, utf16.Encode([]rune(name)), text}, ok
}

func appendFields(b []byte, fields []canonicalField) []byte {
	slices.SortFunc(fields, func(x, y canonicalField) int { return slices.CompareFunc(x.order, y.order, cmp.Compare) })
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, f.name)
		b = append(b, ':')
		b = append(b, f.value...)
	}
	return append(b, '}')
}

// appendCanonical appends the canonical text of one JSON value.
func appendCanonical(b, value []byte, depth int) ([]byte, bool) {
	if depth > maxCanonicalDepth || len(value) == 0 {
		return b, false
	}
	switch value[0] {
	case '{', '[':
		return appendComposite(b, value, depth)
	case '"':
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return b, false
		}
		b, err = jsontext.AppendQuote(b, text)
		return b, err == nil
	case 't', 'f', 'n':
		return append(b, value...), true
	default:
		return appendNumber(b, string(value))
	}
}

func appendComposite(b, value []byte, depth int) ([]byte, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	open, err := d.ReadToken()
	if err != nil {
		return b, false
	}
	isObject := open.Kind() == '{'
	var fields []canonicalField
	var items [][]byte
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		name := ""
		if isObject {
			token, err := d.ReadToken()
			if err != nil {
				return b, false
			}
			name = token.String()
		}
		item, err := d.ReadValue()
		if err != nil {
			return b, false
		}
		f, ok := newCanonicalField(name, item, depth+1)
		if !ok {
			return b, false
		}
		fields, items = append(fields, f), append(items, f.value)
	}
	if isObject {
		return appendFields(b, fields), true
	}
	b = append(b, '[')
	b = append(b, bytes.Join(items, []byte{','})...)
	return append(b, ']'), true
}

// appendNumber writes a JSON number as its exact decimal text.
func appendNumber(b []byte, text string) ([]byte, bool) {
	mantissa, exponentText, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if exponentText != "" {
		n, err := strconv.ParseInt(exponentText, 10, 32)
		if err != nil {
			return b, false
		}
		exponent = int(n)
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(b, '0'), true
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if negative {
		b = append(b, '-')
	}
	return appendDecimal(b, trimmed, exponent), true
}

// appendDecimal writes digits times ten to the exponent.
func appendDecimal(b []byte, digits string, exponent int) []byte {
	point := len(digits) + exponent // digits before the decimal point
	switch {
	case point > maxPlainDigits || point < -maxPlainDigits:
		b = append(b, digits...)
		b = append(b, 'e')
		return strconv.AppendInt(b, int64(exponent), 10)
	case exponent >= 0:
		b = append(b, digits...)
		return append(b, strings.Repeat("0", exponent)...)
	case point > 0:
		b = append(b, digits[:point]...)
		b = append(b, '.')
		return append(b, digits[point:]...)
	default:
		b = append(b, "0."...)
		b = append(b, strings.Repeat("0", -point)...)
		return append(b, digits...)
	}
}
