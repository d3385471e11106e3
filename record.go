package ichido

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// redacted replaces a secret in what is stored.
const redacted = "[redacted]"

// keptAlways are stored with every event.
var keptAlways = []string{"Content-Type", "Content-Encoding", "User-Agent"}

// appendHeaders writes the headers that are kept, in wire form. What was
// undone (an encoding) is left out, and secrets are replaced.
func appendHeaders(b []byte, h http.Header, p *Proof, decoded bool) []byte {
	for _, name := range keptAlways {
		if decoded && name == "Content-Encoding" {
			continue
		}
		b = appendHeader(b, h, name, false)
	}
	for _, name := range p.Keep {
		b = appendHeader(b, h, name, slices.Contains(p.Redact, name))
	}
	return b
}

func appendHeader(b []byte, h http.Header, name string, secret bool) []byte {
	for _, value := range h[name] {
		if secret {
			value = redacted
		}
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	}
	return b
}

const maxCause = 256 // bytes

// printable makes text fit for logs, causes and terminals: printable ASCII,
// at most maxCause bytes. Everything else becomes a question mark.
func printable(text string) string {
	if len(text) > maxCause {
		text = text[:maxCause]
	}
	clean := func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}
	return strings.Map(clean, text)
}

func panicText(p any) string { return fmt.Sprintf("panic: %v", p) }
