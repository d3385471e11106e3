package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// What senders and their servers say may hold what a terminal obeys, or what
// hides or turns around the text beside it. These functions return text in
// which every rune prints; applied to that, they change nothing.

// Text returns text with everything escaped that does not print, but for
// newlines and tabs: \x9b is a byte that is not UTF-8, \u009b a rune. Lines
// end with a newline alone.
func Text(text string) string {
	return escape(strings.ReplaceAll(text, "\r\n", "\n"), "\n\t", escapeText)
}

// Line returns text as Text does, on one line and in one cell of a table.
func Line(text string) string { return escape(text, "", escapeText) }

// JSON returns JSON with everything escaped in it that does not print, so that
// it says the same: \u009b, and a pair of those above U+FFFF. Outside strings
// there is only the carriage return to replace, by a newline.
func JSON(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return escape(strings.ReplaceAll(text, "\r", "\n"), "\n\t", escapeJSON)
}

// Body returns a body, which may be JSON, as Text or as JSON does.
func Body(text string) string {
	if json.Valid([]byte(text)) {
		return JSON(text)
	}
	return Text(text)
}

// escape replaces the runes that do not print and are not kept, and each byte
// that is not UTF-8. as gets the rune, [utf8.RuneError] for such a byte, and
// its bytes.
func escape(text, kept string, as func(r rune, raw string) string) string {
	var b strings.Builder
	done := 0 // up to here the text is in b
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		broken := r == utf8.RuneError && size == 1
		if broken || !unicode.IsPrint(r) && !strings.ContainsRune(kept, r) {
			b.WriteString(text[done:at])
			b.WriteString(as(r, text[at:at+size]))
			done = at + size
		}
		at += size
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

func escapeText(r rune, raw string) string {
	switch {
	case len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func escapeJSON(r rune, _ string) string {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
