package config

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
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

// String returns where the secret comes from, never its value.
func (r Ref) String() string {
	if strings.HasPrefix(r.text, "env:") || strings.HasPrefix(r.text, "file:") {
		return r.text
	}
	return "(written in the file)"
}

// LogValue keeps the value out of logs.
func (r Ref) LogValue() slog.Value { return slog.StringValue(r.String()) }

// Resolve reads the value. Of a file exactly one trailing newline is removed.
// Its errors name the variable or file and the position, never the value.
func (r Ref) Resolve(getenv func(string) (string, bool)) (string, error) {
	if name, found := strings.CutPrefix(r.text, "env:"); found {
		value, set := getenv(name)
		if !set {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		if value == "" {
			return "", fmt.Errorf("environment variable %s is empty", name)
		}
		return value, checkSpace(value, "environment variable "+name)
	}
	if path, found := strings.CutPrefix(r.text, "file:"); found {
		return readSecretFile(path)
	}
	return r.text, checkSpace(r.text, "the value")
}

func readSecretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if info.Mode().Perm()&0o002 != 0 {
		return "", fmt.Errorf("%s can be written by everybody; run chmod o-w %s", path, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if len(data) > maxSecretFile {
		return "", fmt.Errorf("%s is larger than %d bytes: it is not a secret", path, maxSecretFile)
	}
	if rest, found := bytes.CutSuffix(data, []byte("\n")); found {
		data = bytes.TrimSuffix(rest, []byte("\r"))
	}
	if len(data) == 0 {
		return "", fmt.Errorf("%s is empty", path)
	}
	return string(data), checkSpace(string(data), path)
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
