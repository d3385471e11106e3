package provider

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// What became of a wanted member.
const (
	memberMissing   = iota
	memberFound     // its text is in the span
	memberShape     // a level above it is not an object
	memberAmbiguous // it, or a level above it, occurs twice, or in another case too
)

// member is a wanted member of a JSON body: its value's text is
// body[start:end].
type member struct {
	state      int
	start, end int
}

func (m *member) text(body []byte) []byte { return body[m.start:m.end] }

// What a body is.
const (
	envelopeObject  = iota
	envelopeOther   // JSON, but not an object
	envelopeInvalid // not JSON
)

// envelope reads a few members of a JSON body in one pass, without making
// values of the others. A member counts only if it occurs exactly once, in
// exactly its case, at every level that is walked: of two members, one reader
// takes the first and another the last. Below the levels it walks nothing is
// compared; the whole body is judged by Inspect.
type envelope struct {
	root  node
	paths int
	nodes int
}

// node is one level of wanted names.
type node struct {
	name     string
	id       int // among the nodes of the envelope
	slot     int // of the value, -1 for a level that is only walked
	children []*node
}

// newEnvelope reads the members at the paths, in that order.
func newEnvelope(paths [][]string) *envelope {
	e := &envelope{root: node{slot: -1}, paths: len(paths), nodes: 1}
	for slot, path := range paths {
		n := &e.root
		for _, name := range path {
			n = e.child(n, name)
		}
		n.slot = slot
	}
	return e
}

func (e *envelope) child(n *node, name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	c := &node{name: name, id: e.nodes, slot: -1}
	e.nodes++
	n.children = append(n.children, c)
	return c
}

// setAll sets the state of every slot at and below the node.
func (n *node) setAll(out []member, state int) {
	if n.slot >= 0 {
		out[n.slot].state = state
	}
	for _, c := range n.children {
		c.setAll(out, state)
	}
}

// jsonScanner is a decoder with its buffer, reused between bodies.
type jsonScanner struct {
	decoder jsontext.Decoder
	buffer  bytes.Buffer
	base    int    // what offsets of the decoder are relative to
	seen    []bool // by node: whether its name occurred
}

// reset points the scanner at text, which it neither copies nor changes.
func (s *jsonScanner) reset(text []byte, options ...jsontext.Options) {
	s.buffer = *bytes.NewBuffer(text)
	s.decoder.Reset(&s.buffer, options...)
}

// release lets go of the text.
func (s *jsonScanner) release() { s.reset(nil) }

var skipDuplicates = jsontext.AllowDuplicateNames(true)

// read fills out, which has a member per path, from text. It returns what
// text is. Offsets are of text.
func (e *envelope) read(s *jsonScanner, text []byte, out []member) int {
	return e.readWith(s, text, out, skipDuplicates)
}

// readStrictly is read, and judges the whole text by the strict reading on
// the way: no member twice at any level, valid UTF-8.
func (e *envelope) readStrictly(s *jsonScanner, text []byte, out []member) int {
	return e.readWith(s, text, out)
}

func (e *envelope) readWith(s *jsonScanner, text []byte, out []member, options ...jsontext.Options) int {
	clear(out)
	s.seen = append(s.seen[:0], make([]bool, e.nodes)...)
	value := cutBOM(text)
	s.base = len(text) - len(value)
	s.reset(value, options...)
	if s.decoder.PeekKind() != '{' {
		if _, err := s.decoder.ReadValue(); err != nil || !s.atEnd(value) {
			return envelopeInvalid
		}
		return envelopeOther
	}
	if !s.walk(&e.root, out) || !s.atEnd(value) {
		clear(out)
		return envelopeInvalid
	}
	return envelopeObject
}

// walk reads the object that comes next. It reports whether it is JSON.
func (s *jsonScanner) walk(n *node, out []member) bool {
	if _, err := s.decoder.ReadToken(); err != nil {
		return false
	}
	start := s.offset() - 1
	for s.decoder.PeekKind() == '"' {
		name, err := s.decoder.ReadValue()
		if err != nil {
			return false
		}
		child, exact := n.match(name)
		if child != nil && exact {
			if !s.value(child, out) {
				return false
			}
			continue
		}
		if _, err := s.decoder.ReadValue(); err != nil {
			return false
		}
		if child != nil {
			s.seen[child.id] = true
			child.setAll(out, memberAmbiguous)
		}
	}
	token, err := s.decoder.ReadToken()
	if err != nil || token.Kind() != '}' {
		return false
	}
	if n.slot >= 0 {
		out[n.slot] = member{memberFound, start, s.offset()}
	}
	return true
}

// value reads the value of a wanted member.
func (s *jsonScanner) value(n *node, out []member) bool {
	again := s.seen[n.id]
	s.seen[n.id] = true
	if len(n.children) > 0 && s.decoder.PeekKind() == '{' {
		if !s.walk(n, out) {
			return false
		}
	} else {
		value, err := s.decoder.ReadValue()
		if err != nil {
			return false
		}
		n.setAll(out, memberShape)
		if n.slot >= 0 {
			out[n.slot] = member{memberFound, s.offset() - len(value), s.offset()}
		}
	}
	if again {
		n.setAll(out, memberAmbiguous)
	}
	return true
}

func (s *jsonScanner) offset() int { return s.base + int(s.decoder.InputOffset()) }

// match finds the wanted member with a name, which is quoted as in the body.
// exact is false for a name that another reader could take for it.
func (n *node) match(quoted []byte) (child *node, exact bool) {
	name := quoted[1 : len(quoted)-1]
	plain := true
	for _, c := range name {
		if c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if !plain {
		unquoted, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil {
			return nil, false
		}
		name = unquoted
	}
	for _, c := range n.children {
		if string(name) == c.name {
			return c, true
		}
	}
	for _, c := range n.children {
		if (!plain || len(name) == len(c.name)) && strings.EqualFold(string(name), c.name) {
			return c, false
		}
	}
	return nil, false
}

// atEnd reports whether nothing but white space is left of text.
func (s *jsonScanner) atEnd(text []byte) bool {
	return len(bytes.TrimLeft(text[s.decoder.InputOffset():], " \t\r\n")) == 0
}

// validJSON reports whether text is one JSON value, by the strict reading: no
// member twice at any level, valid UTF-8, nothing after it.
func (s *jsonScanner) validJSON(text []byte) bool {
	s.reset(text)
	_, err := s.decoder.ReadValue()
	return err == nil && s.atEnd(text)
}

// cutBOM skips one byte order mark.
func cutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }
