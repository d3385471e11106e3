package provider

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Kinds of schemes.
const (
	kindMAC   = "mac"
	kindSig   = "sig"
	kindToken = "token"
	kindJWT   = "jwt"
	kindNone  = "none"
)

// texts is a YAML text or a list of them.
type texts []string

// UnmarshalYAML implements the interface of the YAML reader.
func (t *texts) UnmarshalYAML(unmarshal func(any) error) error {
	var one string
	if unmarshal(&one) == nil {
		*t = texts{one}
		return nil
	}
	var many []string
	err := unmarshal(&many)
	*t = many
	return err
}

// profileFile is a profile as it is written.
type profileFile struct {
	Profile   `yaml:",inline"`
	Verify    []variantSpec   `yaml:"verify"` // in order of preference
	Events    eventsSpec      `yaml:"events"`
	Challenge []challengeSpec `yaml:"challenge"`
	Respond   map[string]replySpec
	Form      bool   `yaml:"form"`            // bodies may be forms; a payload field is unwrapped
	Fields    string `yaml:"required_fields"` // "github": the table of required members
}

// variantSpec is one way in which the sender proves that it is genuine.
type variantSpec struct {
	Variant string `yaml:"variant"`
	About   string `yaml:"about"`
	Off     bool   `yaml:"off"` // only when a configuration names it
	Kind    string `yaml:"kind"`
	WeakOK  bool   `yaml:"weak_ok"` // the body is not covered, and that is meant

	Alg string   `yaml:"alg"`
	Key keySpec  `yaml:"key"`
	Msg string   `yaml:"msg"`
	TS  *tsSpec  `yaml:"ts"`
	Sig *sigSpec `yaml:"sig"`

	From        texts  `yaml:"from"`         // token, jwt
	StripPrefix string `yaml:"strip_prefix"` // token, jwt

	Algs         []string          `yaml:"algs"` // jwt
	Claims       map[string]string `yaml:"claims"`
	Leeway       int               `yaml:"leeway"`        // seconds
	IATTolerance int               `yaml:"iat_tolerance"` // seconds, for tokens without exp
	Unending     bool              `yaml:"unending"`      // tokens have neither; only where they bind the body
	BodyHash     *bodyHashSpec     `yaml:"body_hash"`
	BodyClaim    string            `yaml:"body_claim"` // whose text is the body
	URLHash      *bodyHashSpec     `yaml:"url_hash"`   // of settings.public_url
	HeaderTS     *tsSpec           `yaml:"header_ts"`  // outside the token: can only refuse

	Events *eventsSpec `yaml:"events"` // in place of the profile's
}

// tsSpec says where the time is and how it is written.
type tsSpec struct {
	From      string `yaml:"from"`
	Unit      string `yaml:"unit"`
	Tolerance *int   `yaml:"tolerance"` // seconds; 300 when left out
	LongOK    bool   `yaml:"long_ok"`   // more than an hour is meant
	EventTime bool   `yaml:"event_time"`
}

// window is the tolerance as a duration, 0 for none.
func (ts *tsSpec) window() time.Duration {
	if ts.Tolerance == nil {
		return 0
	}
	return time.Duration(*ts.Tolerance) * time.Second
}

// sigSpec says where the signature is and how it is written.
type sigSpec struct {
	From        texts    `yaml:"from"`
	Grammar     string   `yaml:"grammar"`
	Sep         string   `yaml:"sep"`
	Assign      string   `yaml:"assign"`
	GroupSep    string   `yaml:"group_sep"`
	Keys        []string `yaml:"keys"`
	StripPrefix string   `yaml:"strip_prefix"`
	PrefixCI    bool     `yaml:"prefix_ci"`
	Encoding    string   `yaml:"encoding"`
	LowerCase   bool     `yaml:"lower_case"`
}

type bodyHashSpec struct {
	Claim    string `yaml:"claim"`
	Alg      string `yaml:"alg"`
	Encoding string `yaml:"encoding"`
	EmptyOK  bool   `yaml:"empty_ok"` // an empty body has no hash in the token
}

// eventsSpec says what identifies an event. It is no authentication: where
// the values come from decides whether they are signed.
type eventsSpec struct {
	ID          texts  `yaml:"id"`
	Type        texts  `yaml:"type"`
	Action      string `yaml:"action"`     // for allowed_events only: no part of the type
	Repository  string `yaml:"repository"` // for allowed_repositories
	Need        string `yaml:"need"`       // without it there is nothing to act on: ignored
	Key         string `yaml:"key"`        // where there is no id: "body", "signed" or a template
	KeyIf       string `yaml:"key_if"`     // that key counts only where this member is there
	Fingerprint string `yaml:"fingerprint"`
}

// Values of eventsSpec.Key and Fingerprint.
const (
	keyBody   = "body"   // SHA-256 of the body
	keySigned = "signed" // SHA-256 of the signed bytes
	keyKey    = "key"    // fingerprint: SHA-256 of the key
)

// challengeSpec is a handshake: a signed POST that is no event, or a GET or
// HEAD, which nobody signs.
type challengeSpec struct {
	Method    string            `yaml:"method"` // POST when left out
	When      map[string]string `yaml:"when"`   // place: its value, "*" for any, or {config:NAME}
	Unless    string            `yaml:"unless"` // json:member that must be missing
	Signed    bool              `yaml:"signed"`
	Pattern   string            `yaml:"pattern"`   // what an echoed value must match
	Otherwise int               `yaml:"otherwise"` // GET: status where a value is another; 0 where it is no handshake then
	Reply     replySpec         `yaml:"reply"`
}

// replySpec is an answer.
type replySpec struct {
	Status      int    `yaml:"status"`
	ContentType string `yaml:"content_type"`
	Body        string `yaml:"body"` // a template in a challenge, a constant elsewhere
}

const maxProfileBytes = 64 << 10

// parseProfile reads a profile and checks everything that does not depend on
// an operator's configuration. All problems are reported together.
func parseProfile(data []byte) (*profileFile, error) {
	if len(data) > maxProfileBytes {
		return nil, fmt.Errorf("profile is larger than %d bytes", maxProfileBytes)
	}
	for _, t := range lexer.Tokenize(string(data)) {
		if t.Type == token.AnchorType || t.Type == token.AliasType || t.Type == token.MergeKeyType {
			return nil, errors.New("profile: anchors and aliases are not supported: write the values out")
		}
	}
	f := new(profileFile)
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(f); err != nil {
		return nil, fmt.Errorf("read profile: %s", yaml.FormatError(err, false, false))
	}
	f.setDefaults()
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("profile %q: %w", f.ID, err)
	}
	f.describe()
	return f, nil
}

const (
	defaultTolerance = 300 // seconds
	maxTolerance     = time.Hour
)

func (f *profileFile) setDefaults() {
	for i := range f.Verify {
		v := &f.Verify[i]
		if v.Variant == "" {
			v.Variant = "default"
		}
		if (v.Kind == kindMAC || v.Kind == kindSig) && v.Msg == "" {
			v.Msg = "{body}"
		}
		for _, ts := range []*tsSpec{v.TS, v.HeaderTS} {
			if ts != nil && ts.Tolerance == nil && !ts.EventTime {
				tolerance := defaultTolerance
				ts.Tolerance = &tolerance
			}
		}
		v.setKeyDefaults()
		if v.Events == nil {
			v.Events = &f.Events
		}
	}
}

func (v *variantSpec) setKeyDefaults() {
	if v.Sig != nil && v.Sig.Grammar == "" {
		v.Sig.Grammar = grammarRaw
	}
	if v.Sig != nil && v.Sig.Grammar == grammarKV && v.Sig.Assign == "" {
		v.Sig.Assign = "="
	}
	for _, h := range []*bodyHashSpec{v.BodyHash, v.URLHash} {
		if h != nil && h.Alg == "" {
			h.Alg = "sha256"
		}
	}
	switch {
	case v.Key.Decode != "" || v.Key.Source != "":
	case v.Kind == kindSig && v.Alg == "ed25519":
		v.Key.Decode = decodeBase64Key
	case v.Kind == kindSig, v.Kind == kindJWT && !slices.ContainsFunc(v.Algs, isHMAC):
		v.Key.Decode = decodeSPKI
	}
}

func isHMAC(alg string) bool { return slices.Contains(jwtHMAC, alg) }
