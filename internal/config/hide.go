package config

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"ichido.dev/ichido/internal/placeholder"
)

// minHidden is the length under which a value is not looked for in messages:
// it would be found in words.
const minHidden = 4

// remember notes what of a file no message may show: messages are also made
// elsewhere, from values. Their makers keep secrets out; this keeps out what
// nobody expected to be one.
func (d *decoder) remember(n ast.Node, key string, secret bool) {
	if entries, ok := mapping(n); ok {
		for _, entry := range entries {
			name := entry.Key.GetToken().Value
			isHeader := key == "headers" && headerKey.MatchString(name) && !looksSecret(name)
			if !shownKey(name, secret) && !isHeader {
				d.conceal(name)
			}
			d.remember(plain(entry.Value), name, secret || secretKey.MatchString(name))
		}
		return
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, element := range n.Values {
			d.remember(plain(element), key, secret)
		}
	case ast.ScalarNode:
		value := scalarText(n)
		if shownValue(key, value) || !secret && !closedKeys[key] && openValue.MatchString(value) && !looksSecret(value) {
			return
		}
		d.conceal(value)
		if _, after, found := strings.Cut(value, ":"); found {
			d.conceal(after)
		}
	}
}

func (d *decoder) conceal(text string) {
	if len(text) >= minHidden && !placeholder.Is(text) {
		d.concealed = append(d.concealed, text)
	}
}

// hide replaces what must not be shown in a text.
func (d *decoder) hide(text string) string {
	for _, value := range d.concealed {
		text = strings.ReplaceAll(text, value, hidden)
		quoted := strconv.Quote(value)
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], hidden)
	}
	return text
}
