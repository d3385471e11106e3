package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxSecretFile bounds what is read of a secret's file.
const maxSecretFile = 64 << 10

// Secret is a reference to a secret, and when it is valid. It is written as
// one text (env:NAME, file:PATH, or the value itself), or as a mapping with
// value, not_before and not_after. It never prints its value.
type Secret struct {
	Ref       Ref       `yaml:"value"`
	NotBefore time.Time `yaml:"not_before"`
	NotAfter  time.Time `yaml:"not_after"`
}

// UnmarshalText reads the short form.
func (s *Secret) UnmarshalText(text []byte) error { return s.Ref.UnmarshalText(text) }

// IsSet reports whether the configuration names a secret at all.
func (s Secret) IsSet() bool { return s.Ref.text != "" }

// Ref is a reference to a secret's value.
type Ref struct{ text string }

// NewRef returns a reference, as written in the file.
func NewRef(text string) Ref { return Ref{text} }

// UnmarshalText keeps the reference; [Ref.Resolve] reads the value.
func (r *Ref) UnmarshalText(text []byte) error {
	r.text = string(text)
	return nil
}

// isLiteral reports whether the value itself is in the configuration.
func (r Ref) isLiteral() bool {
	return r.text != "" && !strings.HasPrefix(r.text, "env:") && !strings.HasPrefix(r.text, "file:")
}

// String returns where the secret comes from, never its value, which may also
// stand after env: by mistake.
func (r Ref) String() string {
	switch {
	case r.isLiteral():
		return "(written in the file)"
	case shownReference(r.text):
		return r.text
	}
	kind, _, _ := strings.Cut(r.text, ":")
	return kind + ":" + hidden
}

// LogValue keeps the value out of logs.
func (r Ref) LogValue() slog.Value { return slog.StringValue(r.String()) }

var unresolved = regexp.MustCompile(`^(?:\$\{|\{\{ *)[.$]?([A-Za-z_][A-Za-z0-9_]*) *\}?\}$`)

// Resolve reads the value. Of a file exactly one trailing newline is removed.
// Its errors name the variable or file and the position, never the value, and
// say after a semicolon what to do.
func (r Ref) Resolve(getenv func(string) (string, bool)) (string, error) {
	if name, found := strings.CutPrefix(r.text, "env:"); found {
		return readVariable(name, getenv)
	}
	if path, found := strings.CutPrefix(r.text, "file:"); found {
		return readSecretFile(path)
	}
	if v := unresolved.FindStringSubmatch(r.text); v != nil {
		name := v[1]
		if !shownEnv(name) {
			name = "NAME"
		}
		return "", fmt.Errorf("variables are not replaced in the file; write env:%s", name)
	}
	return r.text, checkSpace(r.text, "the value")
}

func readVariable(name string, getenv func(string) (string, bool)) (string, error) {
	value, set := getenv(name)
	shown := shownEnv(name)
	where := "environment variable " + name
	if !shown {
		where = "the environment variable (its name is not shown: it may be a secret)"
	}
	switch {
	case value != "":
		return value, checkSpace(value, where)
	case set:
		return "", fmt.Errorf("%s is empty; give it its value", where)
	case !shown:
		return "", fmt.Errorf("%s is not set; after env: write the name of a variable, for example env:WEBHOOK_SECRET, and its value into the environment", where)
	}
	return "", fmt.Errorf("%s is not set; export %s=... before the start, or correct the name", where, name)
}

func readSecretFile(path string) (string, error) {
	where := path
	if !shownPath(path) {
		where = "the file (its path is not shown: it may be a secret)"
	}
	// An error of package os holds the path.
	cause := func(err error) error {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return fmt.Errorf("read secret: %s: %w; after file: write the path of a file that this user may read", where, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", cause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", cause(err)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return "", fmt.Errorf("%s can be written by everybody; run chmod o-w on it", where)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", cause(err)
	}
	if len(data) > maxSecretFile {
		return "", fmt.Errorf("%s is larger than %d bytes; name the file that holds only the secret", where, maxSecretFile)
	}
	if rest, found := bytes.CutSuffix(data, []byte("\n")); found {
		data = bytes.TrimSuffix(rest, []byte("\r"))
	}
	if len(data) == 0 {
		return "", fmt.Errorf("%s is empty; write the secret to it", where)
	}
	return string(data), checkSpace(string(data), where)
}

// hasLiteralSecret reports whether a secret is written in the configuration.
func (c *Config) hasLiteralSecret() bool {
	refs := []Ref{}
	for _, s := range c.Signing {
		refs = append(refs, s.Ref)
	}
	for _, s := range c.Sources {
		refs = append(refs, s.PathToken.Ref, s.SharedSecret.Value.Ref)
		for _, secret := range s.Secrets {
			refs = append(refs, secret.Ref)
		}
		if s.Confirm.Gemini != nil {
			refs = append(refs, s.Confirm.Gemini.APIKey.Ref)
		}
		if s.Confirm.HTTP != nil {
			for _, secret := range s.Confirm.HTTP.Headers {
				refs = append(refs, secret.Ref)
			}
		}
	}
	return slices.ContainsFunc(refs, Ref.isLiteral)
}

// checkSpace refuses white space that an editor or a shell left behind: at the
// ends, and line ends inside, unless it is a PEM block.
func checkSpace(value, where string) error {
	if strings.HasPrefix(value, "-----BEGIN ") {
		return nil
	}
	for i, c := range []byte(value) {
		edge := i == 0 || i == len(value)-1
		if c == '\n' || c == '\r' || c == '\t' || edge && c == ' ' {
			return fmt.Errorf("%s has white space at byte %d; remove it", where, i+1)
		}
	}
	return nil
}
