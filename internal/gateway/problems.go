package gateway

import (
	"errors"
	"regexp"
	"strings"

	"ichido.dev/ichido/internal/config"
)

// problem records a problem of the provider, unless it follows from one that
// is recorded. Of a provider that is not known only what is said about the
// secrets that are there counts.
func (b *builder) problem(err error, known bool) {
	setting, text := b.settingOf(err)
	at := b.at + "." + setting
	switch {
	case !known && !(strings.HasPrefix(setting, "secrets") && b.file.Has(at)):
	case setting != "" && b.unread[setting]:
	case !strings.Contains(setting, "[") && aboutSecrets(err) && b.secretsAreFaulty():
	default:
		addOne(b.file, b.at, setting, text)
	}
}

// secretsAreFaulty reports whether there is a problem with the secrets of the
// source, so that nothing is known about all of them.
func (b *builder) secretsAreFaulty() bool {
	return len(b.unread) > 0 || b.file.Faulty(b.at+".secrets") || b.file.Faulty(b.at+".shared_secret")
}

// aboutSecrets reports whether a problem of a provider may be only that a
// secret is missing: it also decides which variants there are.
func aboutSecrets(err error) bool {
	text := err.Error()
	return strings.Contains(text, "secrets") || strings.Contains(text, "no configured variant") || strings.Contains(text, "has no secret")
}

// settingOf returns the setting that a problem of a provider is about, and the
// problem in the words of the configuration.
func (b *builder) settingOf(err error) (setting, text string) {
	setting, text = settingOf(err)
	text = inFile.Replace(text)
	if b.in.Provider == "shared-secret" && strings.HasPrefix(setting, "secrets") {
		whole := setting
		setting = "shared_secret.value"
		text = strings.TrimPrefix(text, whole)
		text = strings.Replace(text, "secrets", setting, 1)
		if text = strings.TrimLeft(text, " :"); whole == "secrets" && !b.in.SharedSecret.Value.IsSet() {
			setting, text = "", "has no shared secret: add shared_secret: {value: env:NAME}"
		}
	}
	if b.file.FromVariables() {
		text, _, _ = strings.Cut(text, " (or ")
		text = strings.Replace(text, "make a longer one at the sender", `make one with "openssl rand -hex 24", and give it to the sender too`, 1)
	}
	return setting, text
}

// inFile turns the names that a program uses into those of the file.
var inFile = strings.NewReplacer(
	"set AllowShortSecret", "set allow_short_secret: true",
	" (or set AllowToleranceOverAnHour)", "",
	"set key_set", "set keys: published",
	"key_set", "keys",
)

// undeliverable records what is wrong with a destination, where it is.
func (b *builder) undeliverable(err error) {
	for _, e := range split(err) {
		text := e.Error()
		for _, row := range []struct{ word, setting, cure string }{
			{"header ", "headers", "remove it from headers"},
			{"allow ", "allow", "write for example 10.0.0.0/8"},
			{"", "to", "write for example https://app.example.com/webhooks"},
		} {
			if !strings.Contains(text, row.word) {
				continue
			}
			if at := b.at + ".deliver." + row.setting; !b.file.Faulty(at) {
				b.file.Add(at, text, row.cure)
			}
			break
		}
	}
}

// preface is what stands before the problem itself, and prefix the setting
// that a problem begins with.
var (
	preface = regexp.MustCompile(`^(?:source "[^"]*": |provider \S+: )*`)
	prefix  = regexp.MustCompile(`^[a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)*`)
)

// addJoined records each of several joined errors of an inbox.
func addJoined(file *config.File, at string, err error) {
	for _, e := range split(err) {
		setting, text := settingOf(e)
		addOne(file, at, setting, text)
	}
}

// settingOf returns the setting that an error begins with, "" for none, and
// its text without what is around it.
func settingOf(err error) (setting, text string) {
	text = err.Error()
	text = text[len(preface.FindString(text)):]
	if rest, found := strings.CutPrefix(text, "path token 1 "); found {
		message, cure, cut := strings.Cut(rest, ": ")
		if !cut {
			cure = "make one with `openssl rand -hex 24`"
		}
		return "path_token", message + ": " + cure
	}
	if _, rest, found := strings.Cut(text, "key_set: "); found && strings.HasPrefix(text, "variant ") {
		return "keys", rest + ": write published, file:PATH of a JWKS, or an https URL"
	}
	if strings.HasPrefix(text, "name must be ") {
		return "name", strings.TrimPrefix(text, "name ") + ": rename it, for example my-source"
	}
	return prefix.FindString(text), text
}

// split returns the errors that were joined.
func split(err error) []error {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return splitWrapped(err)
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}

// splitWrapped is split for joined errors inside a text: "destination: " and
// several lines.
func splitWrapped(err error) []error {
	inner := errors.Unwrap(err)
	if inner == nil {
		return []error{err}
	}
	if _, ok := inner.(interface{ Unwrap() []error }); !ok {
		return []error{err}
	}
	return split(inner)
}

// addOne records a problem at its setting, or at the source where that is not
// in the file. What was said of that setting is not said again.
func addOne(file *config.File, at, setting, text string) {
	if setting != "" && file.Faulty(at+"."+setting) {
		return
	}
	if setting != "" && file.Has(at+"."+setting) {
		at += "." + setting
		text = strings.TrimLeft(strings.TrimPrefix(text, setting), " :")
	}
	message, cure, _ := strings.Cut(text, ": ")
	file.Add(at, message, cure)
}
