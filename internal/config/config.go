// Package config reads ichido's one configuration file: strict YAML, every
// problem reported at once with its line and its cure, secrets by reference.
//
// It knows shapes and references, not providers and stores: what a setting
// does is the gateway's business.
package config

import (
	"cmp"
	"strings"
	"time"
)

// Config is the whole configuration of `ichido serve`.
type Config struct {
	// Listen is the address for deliveries, host:port. Default 127.0.0.1:8080.
	Listen string `yaml:"listen"`

	// Admin is the listener for health, metrics and the admin API.
	Admin Admin `yaml:"admin"`

	// Store is where events are kept: "sqlite:PATH", relative to the working
	// directory. Default sqlite:ichido-data/ichido.db.
	Store string `yaml:"store"`

	Limits    Limits    `yaml:"limits"`
	Retention Retention `yaml:"retention"`

	// Signing is the key that forwards are signed with, by the Standard
	// Webhooks scheme: "whsec_" and base64 of 24 to 64 bytes. Several while
	// one is replaced: each forward is then signed with all of them.
	Signing []Secret `yaml:"signing"`

	// Sources are the inbound endpoints. At least one.
	Sources []Source `yaml:"sources"`
}

// Admin is the admin listener.
type Admin struct {
	// Listen is its address. Default 127.0.0.1:8081.
	Listen string `yaml:"listen"`

	// Tokens are SHA-256 hashes of the bearer tokens that the admin API
	// accepts, as printed by `ichido token`. None: the API is off; health and
	// metrics are always on.
	Tokens []string `yaml:"tokens"`
}

// Limits bound what the process takes on.
type Limits struct {
	// Connections open at the same time on the ingest listener. Default 4096.
	Connections int `yaml:"connections"`

	// SmallBodies and LargeBodies are the memory for bodies that are being
	// read, up to 64 KiB each and above. Defaults 24MiB and 56MiB.
	SmallBodies Size `yaml:"small_bodies"`
	LargeBodies Size `yaml:"large_bodies"`

	// UnverifiedRate bounds requests before their signature is checked, all
	// sources together. Default none.
	UnverifiedRate Rate `yaml:"unverified_rate"`

	// Events is the number of events and keys kept; above it the answer is
	// 503. Default 0: bounded by the disk only.
	Events int `yaml:"events"`

	// FreeDisk is the free space under which the answer is 503. Default 512MiB.
	FreeDisk Size `yaml:"free_disk"`
}

// Retention says how long settled events stay. Pending, dead and quarantined
// ones stay until somebody decides about them.
type Retention struct {
	// Bodies are removed this long after the event is done. Default 30d.
	Bodies Keep `yaml:"bodies"`

	// Keys are forgotten this long after the event is done: from then on a
	// resend is a new event. Never shorter than the sender may resend. Default
	// 30d, and forever where the scheme signs no time.
	Keys Keep `yaml:"keys"`
}

// Source is one inbound endpoint.
type Source struct {
	// Name is part of every event's identity: do not rename a source.
	Name string `yaml:"name"`

	// Provider is the kind of sender; `ichido check --providers` lists them.
	Provider string `yaml:"provider"`

	// Path of the endpoint. Default /hooks/NAME.
	Path string `yaml:"path"`

	// PathToken is a secret last segment of the path; without it the answer
	// is 404.
	PathToken Secret `yaml:"path_token"`

	// Secrets verify the signature. All live ones are tried.
	Secrets []Secret `yaml:"secrets"`

	// SharedSecret is the header that the shared-secret provider compares.
	SharedSecret SharedSecret `yaml:"shared_secret"`

	// Keys are the public keys of the sender, for providers that publish
	// them: "published" for the provider's own address, file:PATH of a JWKS,
	// or an https URL. Without it, what only such a key could verify is
	// refused.
	Keys string `yaml:"keys"`

	// Variants are the variants of the provider's scheme that are accepted.
	// Default: those whose secrets or keys are configured.
	Variants []string `yaml:"variants"`

	// AllowShortSecret admits secrets under 16 bytes, which can be guessed.
	AllowShortSecret bool `yaml:"allow_short_secret"`

	// Settings are public constants that the provider's scheme names, for
	// example audience.
	Settings map[string]string `yaml:"settings"`

	// Tolerance is how far a signed time may be from ours, both ways.
	// Default: the provider's.
	Tolerance Duration `yaml:"tolerance"`

	AllowedEvents       []string `yaml:"allowed_events"`
	AllowedRepositories []string `yaml:"allowed_repositories"`

	// Key is a template over signed facts that replaces the provider's key.
	Key string `yaml:"key"`

	// Fingerprint names the body members that decide between a duplicate and
	// a conflict. Default: the whole body.
	Fingerprint []string `yaml:"fingerprint"`

	BodyLimit    Size   `yaml:"body_limit"`    // default: the provider's
	Encoding     string `yaml:"encoding"`      // "wire" or "decoded": accept gzip; default none
	OnConflict   string `yaml:"on_conflict"`   // "accept" or "reject"; default: the provider's
	OnUnreadable string `yaml:"on_unreadable"` // likewise

	// Rate bounds verified deliveries; above it the answer is 429. Default none.
	Rate Rate `yaml:"rate"`

	Confirm   Confirm   `yaml:"confirm"`
	Deliver   Deliver   `yaml:"deliver"`
	Retention Retention `yaml:"retention"` // overrides the general one
}

// Route returns where the source receives, without the secret part of it.
func (s *Source) Route() string {
	path := strings.TrimSuffix(s.Path, "/")
	if s.PathToken.IsSet() {
		return path + "/{path_token}"
	}
	return cmp.Or(path, "/")
}

// SharedSecret is a header and the value it must have.
type SharedSecret struct {
	Header string `yaml:"header"` // default X-Hook-Secret
	Value  Secret `yaml:"value"`
}

// Confirm asks an API whether an event is true before it is delivered. At
// most one of its members is set.
type Confirm struct {
	Gemini *ConfirmGemini `yaml:"gemini"`
	HTTP   *ConfirmHTTP   `yaml:"http"`

	// For bounds how long "not yet" is accepted. Default 72h.
	For Duration `yaml:"for"`
}

// ConfirmGemini asks the Gemini API.
type ConfirmGemini struct {
	APIKey  Secret `yaml:"api_key"`
	BaseURL string `yaml:"base_url"` // default: the public API
}

// ConfirmHTTP asks any API by a GET.
type ConfirmHTTP struct {
	URL     string            `yaml:"url"` // template over event facts
	Headers map[string]Secret `yaml:"headers"`
	Done    string            `yaml:"done"`    // expression: the event is true
	Refuted string            `yaml:"refuted"` // expression: it is not; else: not yet
	Allow   []string          `yaml:"allow"`   // private networks it may call, CIDR
}

// Deliver forwards events to one destination.
type Deliver struct {
	// To is its URL. A loopback or private address is allowed when it is
	// written here as a literal; a name that resolves to one needs Allow.
	To string `yaml:"to"`

	// Allow lists private networks that To may resolve to, CIDR.
	Allow []string `yaml:"allow"`

	// Headers of the delivery that are forwarded besides Content-Type and the
	// provider's event headers.
	Headers []string `yaml:"headers"`

	Timeout     Duration   `yaml:"timeout"`     // of one attempt; default 30s
	Attempts    int        `yaml:"attempts"`    // default 12, then a dead letter
	Backoff     []Duration `yaml:"backoff"`     // upper bounds of the waits between attempts
	Concurrency int        `yaml:"concurrency"` // attempts at the same time; default 32
}

// Defaults that are not a zero value.
const (
	DefaultListen      = "127.0.0.1:8080"
	DefaultAdminListen = "127.0.0.1:8081"
	DefaultStore       = "sqlite:ichido-data/ichido.db"
	DefaultRetention   = 30 * 24 * time.Hour
)

// withDefaults fills in what the file left out.
func (c *Config) withDefaults() {
	setDefault(&c.Listen, DefaultListen)
	setDefault(&c.Admin.Listen, DefaultAdminListen)
	setDefault(&c.Store, DefaultStore)
	setDefault(&c.Limits.Connections, 4096)
	setDefault(&c.Limits.FreeDisk, 512<<20)
	setDefault(&c.Retention.Bodies, Keep(DefaultRetention))
	for i := range c.Sources {
		s := &c.Sources[i]
		setDefault(&s.Path, "/hooks/"+s.Name)
		setDefault(&s.Deliver.Timeout, Duration(30*time.Second))
		setDefault(&s.Deliver.Concurrency, 32)
		setDefault(&s.Retention.Bodies, c.Retention.Bodies)
		setDefault(&s.Retention.Keys, c.Retention.Keys)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
