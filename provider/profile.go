package provider

import (
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Profile describes a sender: what its scheme proves, how it retries, and
// what to know before using it. It is data for people and for the command
// line; what verifies is made from the same file by [New].
type Profile struct {
	ID         string   `yaml:"id"`
	Name       string   `yaml:"name"`
	Docs       string   `yaml:"docs"` // the sender's documentation
	Confidence string   `yaml:"confidence"`
	Sources    []string `yaml:"sources"` // what was read to write the profile

	Scheme   string `yaml:"scheme"`   // in words
	Signed   string `yaml:"signed"`   // what the signature covers, in words
	Unsigned string `yaml:"unsigned"` // what it does not

	Retries  string        `yaml:"retries"`  // the sender's policy, in words
	Horizon  time.Duration `yaml:"horizon"`  // how long a retry or a manual redelivery may come; 0 when unknown
	Retry    string        `yaml:"retry"`    // a retry is "resigned", "identical", "none" or "unknown"
	Deadline time.Duration `yaml:"deadline"` // how soon the sender wants an answer; 0 when it does not say
	Success  string        `yaml:"success"`  // what it counts as delivered
	Stops    string        `yaml:"stops"`    // which answers make it stop

	BodyLimit        int64 `yaml:"body_limit"` // bytes; 0 for the default of 1 MiB
	AcceptConflict   bool  `yaml:"accept_conflict"`
	AcceptUnreadable bool  `yaml:"accept_unreadable"`

	Handshakes  []string  `yaml:"handshakes"`
	UnsignedIDs []string  `yaml:"unsigned_ids"` // headers with ids that identify nothing
	KeepHeaders []string  `yaml:"keep"`         // further headers that are stored
	Retention   string    `yaml:"retention"`    // advice on how long keys must be kept
	Notes       []string  `yaml:"notes"`
	Settings    []Setting `yaml:"settings"`

	SampleType string `yaml:"sample_type"`
	SampleBody string `yaml:"sample"` // with %ID%, %UNIX% and %MS%

	Variants []Variant `yaml:"-"`
}

// Setting is a public value that an operator may or must give in
// Config.Settings.
type Setting struct {
	Name     string `yaml:"name"`
	About    string `yaml:"about"`
	Default  string `yaml:"default"`  // "" for none
	Header   bool   `yaml:"header"`   // the value is a header name
	Required bool   `yaml:"required"` // what is signed holds it, so that nothing verifies without it
}

// Variant is one of the ways in which a sender proves that it is genuine.
type Variant struct {
	Name     string
	About    string
	Kind     string // mac, sig, token, jwt or none
	Strength string // ichido.Verified, ichido.Authenticated or ichido.Weak
	Off      bool   // counts only when Config.Variants names it
	KeySet   bool   // needs Config.KeySet instead of a secret
	IDSigned bool
	HasID    bool
	TypeFrom string // where the type is read, "" for nowhere

	TypeSigned bool
	TimeSigned bool
	Tolerance  time.Duration // of the signed time, 0 when there is none
}

// Sample returns a body such as the sender might send, with this id in it and
// this time, and its event type.
func (p *Profile) Sample(id string, at time.Time) (body []byte, eventType string) {
	r := strings.NewReplacer(
		"%ID%", id,
		"%UNIX%", strconv.FormatInt(at.Unix(), 10),
		"%MS%", strconv.FormatInt(at.UnixMilli(), 10),
	)
	return []byte(r.Replace(p.SampleBody)), p.SampleType
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// profiles is the embedded table. A profile is read when it is first asked
// for, and once: there are hundreds, and most programs use a few.
var profiles = sync.OnceValues(func() (map[string]func() (*profileFile, error), error) {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		return nil, fmt.Errorf("list profiles: %w", err)
	}
	table := make(map[string]func() (*profileFile, error), len(entries))
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		table[name] = sync.OnceValues(func() (*profileFile, error) { return readProfile(name) })
	}
	return table, nil
})

func readProfile(name string) (*profileFile, error) {
	data, err := profileFiles.ReadFile(path.Join("profiles", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	f, err := parseProfile(data)
	if err != nil {
		return nil, err
	}
	if f.ID != name {
		return nil, fmt.Errorf("profile %q is in file %s.yaml", f.ID, name)
	}
	return f, nil
}

// Names returns the names of the profiles, sorted.
func Names() []string {
	table, _ := profiles()
	return slices.Sorted(maps.Keys(table))
}

// Lookup returns the description of a profile. It must not be changed.
func Lookup(name string) (*Profile, error) {
	f, err := lookup(name)
	if err != nil {
		return nil, err
	}
	return &f.Profile, nil
}

func lookup(name string) (*profileFile, error) {
	table, err := profiles()
	if err != nil {
		return nil, err
	}
	read := table[name]
	if read == nil {
		return nil, fmt.Errorf("provider %q is unknown: use one of %s", name, strings.Join(Names(), ", "))
	}
	return read()
}
