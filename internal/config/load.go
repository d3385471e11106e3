package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// File is a decoded configuration with the places of its settings, so that
// whoever finds a problem later can say where it is.
type File struct {
	Config
	decoder *decoder
}

// Add records a problem with the setting at path, for example
// "sources[0].secrets[1]".
func (f *File) Add(path, message, cure string) { f.decoder.add(path, message, cure) }

// Problems returns everything that is wrong, or nil.
func (f *File) Problems() error {
	if len(f.decoder.problems) == 0 {
		return nil
	}
	return f.decoder.problems.sorted()
}

// Load reads and checks a configuration file. The error is about the file as
// such; what is wrong inside is in [File.Problems].
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(data), nil
}

// Parse decodes and checks a configuration.
func Parse(data []byte) *File {
	c, d := parse(data)
	syntactic := len(d.problems) > 0
	c.withDefaults()
	file := &File{Config: *c, decoder: d}
	file.validate(!syntactic)
	return file
}

// FromEnvironment returns the configuration that HOOK_PATH_TOKEN and
// HOOK_SHARED_SECRET make without a file: one source, gemini, at
// /hooks/gemini/{token}. It returns nil when neither is set.
func FromEnvironment(getenv func(string) (string, bool)) (*File, error) {
	token, hasToken := getenv("HOOK_PATH_TOKEN")
	secret, hasSecret := getenv("HOOK_SHARED_SECRET")
	if !hasToken && !hasSecret {
		return nil, nil
	}
	var errs []error
	if token == "" {
		errs = append(errs, errors.New("HOOK_PATH_TOKEN is not set; it is required beside HOOK_SHARED_SECRET"))
	}
	if secret == "" {
		errs = append(errs, errors.New("HOOK_SHARED_SECRET is not set; it is required beside HOOK_PATH_TOKEN"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	database := "webhook.db"
	if path, set := getenv("HOOK_DB"); set && path != "" {
		database = path
	}
	var b strings.Builder
	fmt.Fprintf(&b, "store: %q\nsources:\n  - name: gemini\n    provider: shared-secret\n", "sqlite:"+database)
	b.WriteString("    path_token: env:HOOK_PATH_TOKEN\n    shared_secret: {header: X-Hook-Secret, value: env:HOOK_SHARED_SECRET}\n")
	if key, set := getenv("GEMINI_API_KEY"); set && key != "" {
		b.WriteString("    confirm: {gemini: {api_key: env:GEMINI_API_KEY}}\n")
	}
	file := Parse([]byte(b.String()))
	file.decoder.forgetPlaces() // nobody wrote this text
	return file, nil
}

// Has reports whether the file sets the setting at path.
func (f *File) Has(path string) bool { return f.decoder.places[path] != nil }
