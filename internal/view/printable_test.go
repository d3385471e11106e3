package view

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestWhatDoesNotPrintIsEscaped(t *testing.T) {
	for _, test := range []struct{ in, text, line, json string }{
		{"plain, 一度, é, 🙂", "plain, 一度, é, 🙂", "plain, 一度, é, 🙂", "plain, 一度, é, 🙂"},
		{"\x9b2J", `\x9b2J`, `\x9b2J`, `\ufffd2J`},
		{"\x85", `\x85`, `\x85`, `\ufffd`},
		{"\u009b2J\u0085", `\u009b2J\u0085`, `\u009b2J\u0085`, `\u009b2J\u0085`},
		{"\x1b[31m\x07\x7f\x00", `\x1b[31m\x07\x7f\x00`, `\x1b[31m\x07\x7f\x00`, `\u001b[31m\u0007\u007f\u0000`},
		{"a\u202eb\u2066c\u200bd\u061c\ufeff", `a\u202eb\u2066c\u200bd\u061c\ufeff`, `a\u202eb\u2066c\u200bd\u061c\ufeff`, `a\u202eb\u2066c\u200bd\u061c\ufeff`},
		{"\u2028\u2029", `\u2028\u2029`, `\u2028\u2029`, `\u2028\u2029`},
		{"\U000e0041", `\U000e0041`, `\U000e0041`, `\udb40\udc41`},
		{"a\tb\nc", "a\tb\nc", `a\x09b\x0ac`, "a\tb\nc"},
		{"a\r\nb\rc", "a\nb\\x0dc", `a\x0d\x0ab\x0dc`, "a\nb\nc"},
		{"\ufffd", "\ufffd", "\ufffd", "\ufffd"}, // a rune as others
	} {
		got := []string{Text(test.in), Line(test.in), JSON(test.in)}
		if diff := cmp.Diff([]string{test.text, test.line, test.json}, got); diff != "" {
			t.Errorf("%q as text, line and JSON (-want +got):\n%s", test.in, diff)
		}
	}
}

func TestBodyThatIsJSONStaysIt(t *testing.T) {
	for in, want := range map[string]string{
		"{\"a\":\"\u009b\u202e\x7f\"}": `{"a":"\u009b\u202e\u007f"}`,
		"{\"a\":1,\r\"b\":2}\r\n":      "{\"a\":1,\n\"b\":2}\n",
		"a=\u009b\x7f":                 `a=\u009b\x7f`,
	} {
		if got := Body(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// dangerous returns the first character of a text that no terminal should get:
// written down by its numbers, not by the rule under test.
func dangerous(text string, newlines bool) (rune, bool) {
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
			if !newlines {
				return r, true
			}
		case r < 0x20, r >= 0x7f && r <= 0x9f, r == 0x061c, r >= 0x200b && r <= 0x200f,
			r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, unicode.Is(unicode.Bidi_Control, r):
			return r, true
		}
	}
	return 0, false
}

func FuzzNothingGetsThroughThatATerminalObeys(f *testing.F) {
	for _, seed := range []string{
		"plain 一度", "\x1b]0;title\x07", "\x9b2J", "\u009b2J", "\x7f\x85\xc2", "\u202eabc\u2066", "a\r\r\nb",
		"{\"a\":\"\u009b\U000e0041\"}", "[1,\r2]", "\"\xed\xa0\x80\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for name, form := range map[string]func(string) string{"Text": Text, "Line": Line, "JSON": JSON, "Body": Body} {
			out := form(in)
			if !utf8.ValidString(out) {
				t.Errorf("%s(%q) = %q: it is not UTF-8", name, in, out)
			}
			if r, found := dangerous(out, name != "Line"); found {
				t.Errorf("%s(%q) = %q: %U is in it", name, in, out, r)
			}
			if again := form(out); again != out {
				t.Errorf("%s(%q) = %q, and of that %q", name, in, out, again)
			}
		}
		var before, after any
		if json.Unmarshal([]byte(in), &before) != nil {
			return
		}
		if err := json.Unmarshal([]byte(JSON(in)), &after); err != nil {
			t.Fatalf("JSON(%q) is none: %v", in, err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("JSON(%q) says something else (-before +after):\n%s", in, diff)
		}
	})
}

// TestDangerIsSeen: a function that escapes nothing would not pass.
func TestDangerIsSeen(t *testing.T) {
	for _, text := range []string{"\x1b", "\u009b", "\x7f", "\u202e", "\u2066", "\u200f", "\r"} {
		if _, found := dangerous("a"+text, true); !found {
			t.Errorf("%q is taken for harmless", text)
		}
	}
	if r, found := dangerous(strings.Repeat("é一\n", 2), true); found {
		t.Errorf("%U is taken for dangerous", r)
	}
}
