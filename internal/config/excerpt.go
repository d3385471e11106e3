package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// A configuration holds secrets, also where they do not belong: so what is
// shown of it is the exception. An excerpt shows the names of settings, and
// values of settings that cannot be secret where they look as they should.

const hidden = "***"

var (
	word       = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?:?|'(?:[^']|'')*'?:?|[^\s,{}\[\]]+`)
	settingKey = regexp.MustCompile(`^[a-z_]{1,24}$`)
	headerKey  = regexp.MustCompile(`^[A-Za-z]+(?:-[A-Za-z]+)*$`)
	openValue  = regexp.MustCompile(`^[A-Za-z0-9._:+/-]{1,40}$`)
	envName    = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,15}(?:_[A-Z0-9]{1,16}){0,8}$`)
	openPath   = regexp.MustCompile(`^[A-Za-z0-9._/ -]+$`)
	secretKey  = regexp.MustCompile(`(?i)secret|token|api_?key|value|passw|authorization|signing|header$`)
	secretText = regexp.MustCompile(`^(?:whsec|whpk|sk|pk|rk|gh[a-z]|github_pat|glpat|xox[a-z]|shp[a-z]{2})[_-]|^(?:AKIA|AIza|ey[JK])|-----BEGIN`)
	run        = regexp.MustCompile(`[A-Za-z0-9+=]+`)
	letterRun  = regexp.MustCompile(`[A-Za-z]+`)
)

// openKeys are the settings whose values cannot be secret, and how those
// values look.
var openKeys = func() map[string]*regexp.Regexp {
	number := regexp.MustCompile(`^\d[A-Za-z0-9.:+/-]{0,30}$`)
	keys := map[string]*regexp.Regexp{
		"name":               regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`),
		"provider":           regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`),
		"listen":             regexp.MustCompile(`^[A-Za-z0-9.:-]*:\d+$|^\d+$`),
		"encoding":           regexp.MustCompile(`^(?:wire|decoded)$`),
		"on_conflict":        regexp.MustCompile(`^(?:accept|reject)$`),
		"on_unreadable":      regexp.MustCompile(`^(?:accept|reject)$`),
		"allow_short_secret": regexp.MustCompile(`^(?:true|false)$`),
		"keys":               regexp.MustCompile(`^(?:published|forever|\d+[a-z]+)$`),
		"bodies":             regexp.MustCompile(`^(?:forever|\d+[a-z]+)$`),
	}
	for _, name := range []string{
		"connections", "small_bodies", "large_bodies", "unverified_rate", "events", "free_disk", "not_before", "not_after",
		"tolerance", "body_limit", "rate", "for", "timeout", "attempts", "backoff", "concurrency",
	} {
		keys[name] = number
	}
	return keys
}()

// closedKeys are settings whose values may hold a secret in a part of them.
var closedKeys = map[string]bool{"to": true, "url": true, "base_url": true, "path": true, "keys": true, "store": true}

// knownKeys are the names of all settings.
var knownKeys = settingNames(reflect.TypeFor[Config]())

func settingNames(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return settingNames(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	var names []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			names = append(append(names, name), settingNames(t.Field(i).Type)...)
		}
	}
	return names
}

// excerpt returns a line of the file with a caret under the column.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	text, at := strings.TrimRight(lines[line-1], "\r"), column-1
	text, at = mask(text, at, underSecret(lines, line))
	caret := strings.Repeat(" ", max(min(at, len(text)), 0)) + "^"
	return fmt.Sprintf("%5d | %s\n      | %s", line, text, caret)
}

// underSecret reports whether a line is inside a setting that has secrets, by
// the indentation of the lines above.
func underSecret(lines []string, line int) bool {
	indent := func(s string) int { return len(s) - len(strings.TrimLeft(s, " -\t")) }
	own := indent(lines[line-1])
	for i := line - 2; i >= 0; i-- {
		if strings.TrimSpace(lines[i]) != "" && indent(lines[i]) < own {
			return secretKey.MatchString(lines[i])
		}
	}
	return false
}

// mask hides the words of a line that may not be shown, and moves the offset
// at along. Inside a setting that has secrets only the names of settings are
// shown.
func mask(text string, at int, secret bool) (masked string, moved int) {
	var b strings.Builder
	moved, end := at, 0
	key := ""
	for _, span := range word.FindAllStringIndex(text, -1) {
		b.WriteString(text[end:span[0]])
		w, start := text[span[0]:span[1]], b.Len()
		end = span[1]
		name, isKey := strings.CutSuffix(w, ":")
		name = strings.Trim(name, `"'`)
		switch {
		case w == "-", isKey && shownKey(name, secret || key != ""), !isKey && shownValue(key, w):
			b.WriteString(w)
		case isKey:
			b.WriteString(hidden + ":")
		default:
			b.WriteString(hidden)
		}
		switch {
		case span[1] <= at:
			moved = at + b.Len() - span[1]
		case span[0] <= at:
			moved = start
		}
		key = ""
		if isKey {
			key = name
			secret = secret || secretKey.MatchString(name)
		}
	}
	b.WriteString(text[end:])
	return b.String(), moved
}

// shownKey reports whether the name of a setting may be shown, also one that
// does not exist: people misspell names. Inside a setting that has secrets it
// may be one, unless it is nearly the name of a setting.
func shownKey(name string, secret bool) bool {
	if !settingKey.MatchString(name) || looksSecret(name) {
		return false
	}
	return !secret || Nearest(name, knownKeys) != ""
}

// shownValue reports whether a value of a setting may be shown.
func shownValue(key, value string) bool {
	if q := value[:min(1, len(value))]; q == `"` || q == "'" {
		value = strings.TrimSuffix(value[1:], q)
	}
	switch {
	case shownReference(value):
		return true
	case openKeys[key] == nil:
		return false
	}
	return openKeys[key].MatchString(value) && !looksSecret(value)
}

// shownReference reports whether a text refers to a secret, and its name can
// be shown: people write the secret itself after env: and file:.
func shownReference(text string) bool {
	if name, found := strings.CutPrefix(text, "env:"); found {
		return shownEnv(name)
	}
	path, found := strings.CutPrefix(text, "file:")
	return found && shownPath(path)
}

// shownEnv reports whether a text is clearly the name of a variable.
func shownEnv(name string) bool { return envName.MatchString(name) && !looksSecret(name) }

// shownPath reports whether a text is clearly the path of a file.
func shownPath(path string) bool {
	return strings.Contains(path, "/") && openPath.MatchString(path) && !looksSecret(path[strings.LastIndex(path, "/")+1:])
}

// looksSecret reports whether a text looks like a key or a token: by how it
// begins, or because a part of it is long and not made of words.
func looksSecret(text string) bool {
	if secretText.MatchString(text) {
		return true
	}
	for _, part := range run.FindAllString(text, -1) {
		if len(part) >= 32 || len(part) >= 14 && len(letterRun.FindAllString(part, -1)) >= 3 || len(part) >= 24 && !strings.ContainsAny(part, "aeiou") {
			return true
		}
	}
	return false
}
