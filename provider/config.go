package provider

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Config is what an operator says about one source. [New] checks all of it
// and reports every problem together, each with the field and the cure, never
// with a value.
type Config struct {
	// Name of the source; the profile's name by default. It is part of every
	// event's identity: do not rename a source that has events.
	Name string

	// Secrets are the shared secrets, tokens or public keys as the sender
	// shows them, at most 8. All that are live are tried on every request.
	// Where a profile has several variants, the form of a secret says which
	// one it belongs to (whsec_..., whpk_...).
	Secrets []Secret

	// KeySet makes variants count whose keys the sender publishes. Left nil,
	// those variants are off: whoever can make the sender call a URL of his
	// choice gets genuine signatures under published keys.
	KeySet *KeySet

	// Variants, when set, are the only ones that count. A variant that a
	// profile marks as off, such as github's sha1-legacy, counts only when it
	// is named here.
	Variants []string

	// Tolerance of the signed time, both directions, in whole seconds; nil
	// for the profile's. Zero is an error, not "off". More than an hour needs
	// AllowToleranceOverAnHour.
	Tolerance                *time.Duration
	AllowToleranceOverAnHour bool

	// AllowedEvents, when set, are the event types that are accepted. Where
	// bodies have an action, a type may be given with it
	// ("pull_request.opened") or without ("pull_request", every action). The
	// event's type is "pull_request" either way.
	AllowedEvents []string

	// AllowedRepositories, when set, are the repositories ("owner/name", in
	// any case) whose events are accepted. An event without one is refused.
	AllowedRepositories []string

	// Key, when set, is a template over signed facts that identifies an
	// event, in place of the profile's: "{json:operation.name}:{json:state}".
	// A member that is missing is an error, not an empty key, unless it is
	// written as optional: "{json:state?}".
	Key string

	// Fingerprint, when set, names members of the body: two deliveries of
	// one key are duplicates when those are equal, whatever the rest is.
	Fingerprint []string

	// Settings are the profile's public values, for example the audience of
	// a token or the name of a header. [Profile.Settings] lists them.
	Settings map[string]string

	// AllowShortSecret admits secrets of less than 16 bytes. Published test
	// vectors have such secrets; a real one can be guessed.
	AllowShortSecret bool

	// AcceptConflict and AcceptUnreadable override the profile: whether a
	// conflict, or a verified body that cannot be read, is acknowledged
	// instead of answered with an error. nil for the profile's.
	AcceptConflict   *bool
	AcceptUnreadable *bool

	BodyLimit int64 // bytes; 0 for the profile's

	// HTTPClient fetches key sets; one over http.DefaultTransport by default,
	// which reaches any address. Whichever it is, a fetch ends after 5
	// seconds, follows no redirect, sends no cookie, and reads at most 256 KiB.
	HTTPClient *http.Client
}

// KeySet says where public keys come from: from JSON when it is set (a JWKS,
// as a file holds it), else from URL, else from the URL that the profile
// pins. A fetched set is kept, and refreshed at most every five minutes.
type KeySet struct {
	JSON []byte
	URL  string // https, or http on a loopback address or localhost
}

// settings returns the values of the profile's settings, with defaults.
func (c *Config) settings(f *profileFile, p *problems) map[string]string {
	values := map[string]string{}
	known := map[string]bool{}
	for _, s := range f.Settings {
		known[s.Name] = true
		value, given := c.Settings[s.Name]
		if !given {
			value = s.Default
		}
		switch {
		case s.Required && !given && value == "":
			p.add("settings.%s is missing: set it, to %s", s.Name, s.About)
		case given && (value == "" || strings.TrimSpace(value) != value || !printable(value, 256)):
			p.add("settings.%s must be printable text without white space at its ends", s.Name)
		case s.Header && !validToken(value):
			p.add("settings.%s must be the name of a header", s.Name)
		case value != "":
			values[s.Name] = value
		}
	}
	for name := range c.Settings {
		if !known[name] {
			p.add("settings.%s is unknown to provider %s: remove it", name, f.ID)
		}
	}
	return values
}

// check reports what is wrong apart from secrets and variants.
func (c *Config) check(f *profileFile, p *problems) {
	if c.Tolerance != nil {
		t := *c.Tolerance
		switch {
		case t <= 0:
			p.add("tolerance must be positive: zero and less are not \"off\"")
		case t%time.Second != 0:
			p.add("tolerance must be whole seconds")
		case t > maxTolerance && !c.AllowToleranceOverAnHour:
			p.add("tolerance is more than an hour: a captured request could be replayed as long; lower it (or set AllowToleranceOverAnHour)")
		}
	}
	for i, event := range c.AllowedEvents {
		if !printable(event, maxType) || event == "" || strings.TrimSpace(event) != event {
			p.add("allowed_events[%d] must be an event type, for example pull_request.opened", i)
		}
	}
	if len(c.AllowedEvents) > 0 && len(f.Events.Type) == 0 {
		p.add("allowed_events: provider %s has no event types: remove it", f.ID)
	}
	for i, repository := range c.AllowedRepositories {
		owner, name, found := strings.Cut(repository, "/")
		if !found || owner == "" || name == "" || strings.ContainsAny(name, "/ ") || !printable(repository, 256) {
			p.add("allowed_repositories[%d] must be owner/name", i)
		}
	}
	if len(c.AllowedRepositories) > 0 && f.Events.Repository == "" {
		p.add("allowed_repositories: provider %s has no repositories: remove it", f.ID)
	}
	if c.BodyLimit < 0 {
		p.add("body_limit must not be negative")
	}
	if len(c.Secrets) > maxSecrets {
		p.add("secrets has %d entries, at most %d are tried: remove retired ones", len(c.Secrets), maxSecrets)
	}
	for _, name := range c.Variants {
		if !slices.ContainsFunc(f.Verify, func(v variantSpec) bool { return v.Variant == name }) {
			p.add("variants: provider %s has no variant %q: use %s", f.ID, name, strings.Join(variantNames(f), ", "))
		}
	}
}

func variantNames(f *profileFile) []string {
	var names []string
	for _, v := range f.Verify {
		names = append(names, v.Variant)
	}
	return names
}

// printable reports whether text is printable ASCII of at most limit bytes.
func printable(text string, limit int) bool {
	if len(text) > limit {
		return false
	}
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
