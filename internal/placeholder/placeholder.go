// Package placeholder knows the texts that stand where a secret should: what
// examples, templates and unset variables leave behind. Whoever can read an
// example could sign with them.
//
// It does not judge how long or how random a secret is.
package placeholder

import "strings"

// Is reports whether value stands for a secret instead of being one. White
// space around it, the case of letters, and the prefixes whsec_, whpk_ and
// "v1," do not count; nor do hyphens, underscores and spaces between words.
// These are placeholders:
//
//   - nothing, and nothing but white space, after a prefix too;
//   - what programs write for a value that is not set: undefined, null, none,
//     nil, true, false;
//   - words that ask for a secret: changeme, change-it, change-this,
//     replaceme, replace-this, fixme, todo, tbd, placeholder, example, secret,
//     password, no-secret-provided; and whatever begins with
//     changeme, replaceme or replace-with;
//   - your-... and your_..., and your...secret, key, token or password in one
//     word;
//   - [redacted], which stands in stored deliveries;
//   - <...>, and whatever holds ${ or {{: a variable that nobody resolved;
//   - a filling alone: x, *, ., -, _, #, ? and the ellipsis, in any number and
//     mixture ("xxxx-xxxx", "whsec_...").
func Is(value string) bool {
	text := strings.ToLower(strings.TrimSpace(value))
	text = strings.TrimPrefix(text, "v1,")
	text = strings.TrimPrefix(text, "whsec_")
	text = strings.TrimPrefix(text, "whpk_")
	text = strings.TrimSpace(text)
	if strings.Trim(text, "x*.-_#?… ") == "" {
		return true
	}
	if text[0] == '<' && text[len(text)-1] == '>' || strings.Contains(text, "${") || strings.Contains(text, "{{") {
		return true
	}
	if strings.HasPrefix(text, "your-") || strings.HasPrefix(text, "your_") || strings.HasPrefix(text, "your ") {
		return true
	}
	return isPhrase(strings.NewReplacer("-", "", "_", "", " ", "").Replace(text))
}

// isPhrase judges a text without what separates its words.
func isPhrase(text string) bool {
	switch text {
	case "undefined", "null", "none", "nil", "true", "false",
		"changeit", "changethis", "replacethis", "fixme", "todo", "tbd", "placeholder", "example",
		"secret", "password", "nosecretprovided", "[redacted]":
		return true
	}
	for _, start := range []string{"changeme", "replaceme", "replacewith"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	if strings.HasPrefix(text, "your") {
		for _, end := range []string{"secret", "key", "token", "password"} {
			if strings.HasSuffix(text, end) {
				return true
			}
		}
	}
	return false
}
