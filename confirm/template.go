package confirm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxFact is the length of the longest fact that goes into a URL, in bytes.
const maxFact = 256

// template is a URL with places for facts of an event. It is immutable.
type template struct {
	base  *url.URL // for its scheme, host and port: they are fixed
	parts []part
}

// part is a piece of text, or, where path is set, the place of a fact.
type part struct {
	text  string
	path  []string
	query bool // the place is in the query
}

func parseTemplate(text string) (*template, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "https" && scheme != "http" {
		return nil, errors.New(`must be of the form "https://host/path/{payload.id}"`)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.ContainsAny(rest[:end], "{}@") {
		return nil, errors.New("the host must be fixed: no placeholder and no credentials before the path")
	}
	t := &template{}
	sample := scheme + "://" + rest[:end] // as the URL will look
	t.parts = append(t.parts, part{text: sample})
	query := false
	for rest = rest[end:]; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		literal := rest
		if open >= 0 {
			literal = rest[:open]
		}
		query = query || strings.Contains(literal, "?")
		t.parts = append(t.parts, part{text: literal})
		sample += literal
		if open < 0 {
			break
		}
		name, after, ok := strings.Cut(rest[open+1:], "}")
		if !ok || rest[open] == '}' {
			return nil, fmt.Errorf("a brace without its partner at character %d", len(text)-len(rest)+open+1)
		}
		path, err := parsePlace(name)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{path: path, query: query})
		sample += "x"
		rest = after
	}
	base, err := url.Parse(sample)
	if err != nil || base.Hostname() == "" || base.Fragment != "" || strings.Contains(sample, "#") {
		return nil, errors.New("is not a valid URL, or has a fragment")
	}
	t.base = base
	return t, nil
}

// parsePlace reads what stands between braces.
func parsePlace(name string) ([]string, error) {
	switch name {
	case "event.id", "event.key", "event.type", "event.source":
		return strings.Split(name, "."), nil
	}
	path := strings.Split(name, ".")
	if path[0] != "payload" || len(path) < 2 || strings.Contains(name, "..") || strings.HasSuffix(name, ".") || strings.ContainsAny(name, "{ ") {
		return nil, fmt.Errorf("{%s} is no fact: use {event.id}, {event.key}, {event.type}, {event.source} or {payload.member.member}", name)
	}
	return path, nil
}

// expand returns the URL for an event. Whatever the facts are, its scheme,
// host and port, and the number of its segments, are those of the template.
func (t *template) expand(f *facts) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.path == nil {
			b.WriteString(p.text)
			continue
		}
		value, err := f.value(p.path)
		switch {
		case err != nil:
			return "", fmt.Errorf("{%s} of the URL: %w", strings.Join(p.path, "."), err)
		case p.query:
			b.WriteString(url.QueryEscape(value))
		default:
			b.WriteString(url.PathEscape(value))
		}
	}
	return b.String(), nil
}

// value returns a fact as text that is safe in a URL once it is escaped.
func (f *facts) value(path []string) (string, error) {
	var value string
	if path[0] == "event" {
		value = map[string]string{"id": f.id, "key": f.key, "type": f.eventType, "source": f.source}[path[1]]
	} else {
		raw, ok := member(f.payload, path[1:]...)
		if !ok || string(raw) == "null" {
			return "", errors.New("the event has no such member")
		}
		if json.Unmarshal(raw, &value) != nil {
			value = string(raw)
			if !isInteger(value) {
				return "", errors.New("the member is neither a string nor a whole number")
			}
		}
	}
	if value == "" || len(value) > maxFact {
		return "", fmt.Errorf("the value must have 1 to %d bytes", maxFact)
	}
	unsafe := func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '/' || r == '\\' || r == utf8.RuneError
	}
	if value == "." || value == ".." || strings.ContainsFunc(value, unsafe) {
		return "", errors.New("the value has a slash, a backslash or a control character, or is a dot segment")
	}
	return value, nil
}

// isInteger reports whether JSON is a whole number, of any size, as it is.
func isInteger(text string) bool {
	if _, err := strconv.ParseFloat(text, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return false
	}
	return !strings.ContainsAny(text, ".eE")
}
