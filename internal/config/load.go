package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// File is a decoded configuration with the places of its settings, so that
// whoever finds a problem later can say where it is.
type File struct {
	Config
	decoder *decoder
	mode    os.FileMode // of the file, 0 where there is none
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
	file := Parse(data)
	if info, err := f.Stat(); err == nil && runtime.GOOS != "windows" {
		file.mode = info.Mode().Perm()
	}
	return file, nil
}

// Warnings returns what is no problem, and still not as it should be.
func (f *File) Warnings() []string {
	if f.mode&0o077 == 0 || !f.hasLiteralSecret() {
		return nil
	}
	return []string{fmt.Sprintf("the configuration holds secrets, and other users may read it (mode %04o): run chmod 600 on it, or write env:NAME or file:PATH in their place", f.mode)}
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

// minSecret is how short a path token or a shared secret may be, characters.
const minSecret = 16

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
	for _, v := range []struct{ name, value, other string }{
		{"HOOK_PATH_TOKEN", token, "HOOK_SHARED_SECRET"}, {"HOOK_SHARED_SECRET", secret, "HOOK_PATH_TOKEN"},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("%s is not set; it is required beside %s: export %s=VALUE", v.name, v.other, v.name))
		}
	}
	for _, v := range []struct{ name, value string }{{"HOOK_PATH_TOKEN", token}, {"HOOK_SHARED_SECRET", secret}} {
		if len(errs) > 0 && v.value != "" && len(v.value) < minSecret {
			errs = append(errs, fmt.Errorf("%s is shorter than %d characters; make one with \"openssl rand -hex 24\"", v.name, minSecret))
		}
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
	file.decoder.variables = map[string]string{
		"store": "HOOK_DB", "sources[0].path_token": "HOOK_PATH_TOKEN", "sources[0].shared_secret.value": "HOOK_SHARED_SECRET",
		"sources[0].confirm.gemini.api_key": "GEMINI_API_KEY", "sources[0].confirm": "GEMINI_API_KEY",
	}
	return file, nil
}

// Faulty reports whether a problem with the setting at path, or with one
// inside it, is recorded already: one mistake is said once.
func (f *File) Faulty(path string) bool {
	if f.decoder.misspelt[path] {
		return true
	}
	return slices.ContainsFunc(f.decoder.faulty, func(at string) bool {
		rest, inside := strings.CutPrefix(at, path)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// FromVariables reports whether the configuration is from the environment,
// where nobody can write another setting.
func (f *File) FromVariables() bool { return f.decoder.variables != nil }

// Has reports whether the file sets the setting at path.
func (f *File) Has(path string) bool { return f.decoder.places[path] != nil }
