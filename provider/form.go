package provider

import (
	"bytes"
	"net/url"
	"strings"
)

const maxFormFields = 256

// form is a parsed application/x-www-form-urlencoded body.
type form []field

// parseForm reads a form strictly: an escape that is none, a bare semicolon,
// and more than maxFormFields are errors, not guesses.
func parseForm(body []byte) (form, bool) {
	var f form
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if len(f) == maxFormFields || strings.Contains(pair, ";") {
			return nil, false
		}
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, false
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, false
		}
		f = append(f, field{name, value})
	}
	return f, len(f) > 0
}

// value returns a field, and how often it occurs.
func (f form) value(name string) (value string, times int) {
	for _, field := range f {
		if field.name == name {
			value, times = field.value, times+1
		}
	}
	return value, times
}

// isForm reports whether a body is to be read as a form: whether it does not
// begin as JSON does. The bytes decide, which are signed, never the
// Content-Type, which is not.
func isForm(body []byte) bool {
	text := bytes.TrimLeft(cutBOM(body), " \t\r\n")
	if len(text) == 0 {
		return false
	}
	name, _, found := bytes.Cut(text, []byte("="))
	if !found {
		return false
	}
	for _, c := range name {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !word && strings.IndexByte("_.-%+[]", c) < 0 {
			return false
		}
	}
	return len(name) > 0
}

const payloadField = "payload"

// unwrap returns the JSON view of a form: its one payload field. Two of them
// are never chosen between. A form without one has no JSON view.
func (f form) unwrap() (payload []byte, ok bool) {
	value, times := f.value(payloadField)
	if times == 0 {
		return nil, true
	}
	return []byte(value), times == 1
}
