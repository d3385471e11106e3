package provider

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"ichido.dev/ichido"
)

// New makes the source of a profile: it verifies what that sender sends, with
// the secrets and the policy of c. It is the one way to make such a source,
// whether the configuration comes from code, a file, the environment or a
// reload, so that all of them refuse the same: an empty secret, for one. All
// problems are reported together.
func New(profile string, c Config) (ichido.Source, error) {
	f, err := lookup(profile)
	if err != nil {
		return ichido.Source{}, err
	}
	return newSource(f, c)
}

func newSource(f *profileFile, c Config) (ichido.Source, error) {
	e, err := compile(f, &c)
	if err != nil {
		return ichido.Source{}, fmt.Errorf("provider %s: %w", f.ID, err)
	}
	s := ichido.Source{
		Name: c.Name, Provider: e, BodyLimit: f.BodyLimit,
		AcceptConflict: f.AcceptConflict, AcceptUnreadable: c.acceptsUnreadable(f),
	}
	if s.Name == "" {
		s.Name = f.ID
	}
	if c.BodyLimit > 0 {
		s.BodyLimit = c.BodyLimit
	}
	if c.AcceptConflict != nil {
		s.AcceptConflict = *c.AcceptConflict
	}
	return s, nil
}

func (c *Config) acceptsUnreadable(f *profileFile) bool {
	if c.AcceptUnreadable != nil {
		return *c.AcceptUnreadable
	}
	return f.AcceptUnreadable
}

// compile makes the engine of a profile and a configuration.
func compile(f *profileFile, c *Config) (*engine, error) {
	var p problems
	c.check(f, &p)
	settings := c.settings(f, &p)
	if len(p) > 0 {
		return nil, p.join()
	}
	variants := c.variants(f, settings, &p)
	e := &engine{policy: newPolicy(c), form: f.Form}
	e.work.New = e.newWork
	sets := map[string]*keyCache{}
	for _, v := range variants {
		schemes, err := v.compileFor(c, settings, sets)
		if err != nil {
			p.add("variant %s: %w", v.Variant, err)
			continue
		}
		for _, s := range schemes {
			s.identity = newIdentity(f, s, c, e.policy.set(), &p)
		}
		e.schemes = append(e.schemes, schemes...)
	}
	c.giveSecrets(e.schemes, &p)
	if c.Tolerance != nil && len(p) == 0 && !setTolerance(e.schemes, c) {
		p.add("tolerance: no configured variant of provider %s has a signed time: remove it", f.ID)
	}
	if err := errors.Join(e.complete(f, settings), p.join()); err != nil {
		return nil, err
	}
	return e, nil
}

func setTolerance(schemes []*scheme, c *Config) bool {
	found := false
	for _, s := range schemes {
		if s.time != nil {
			s.tolerance, found = *c.Tolerance, true
		}
		if s.jwt != nil && s.jwt.header != nil {
			s.jwt.tolerance, found = *c.Tolerance, true
		}
	}
	return found
}

// variants returns the variants that count: those that the configuration
// names, or else those that are not off and have keys.
func (c *Config) variants(f *profileFile, settings map[string]string, p *problems) []*variantSpec {
	var chosen []*variantSpec
	for i := range f.Verify {
		v := &f.Verify[i]
		named := slices.Contains(c.Variants, v.Variant)
		if len(c.Variants) > 0 && !named || v.Off && !named {
			continue
		}
		if err := v.configured(c, f, settings); err != nil {
			if named {
				p.add("variant %s: %w", v.Variant, err)
			}
			continue
		}
		chosen = append(chosen, v)
	}
	if len(chosen) == 0 && len(*p) == 0 {
		if f.hasKeySet() {
			p.add("secrets is empty and no key set is given: set one of them, a source without either would accept nothing")
		} else {
			p.add("secrets is empty: set at least one, as the sender shows it")
		}
	}
	return chosen
}

func (f *profileFile) hasKeySet() bool {
	return slices.ContainsFunc(f.Verify, func(v variantSpec) bool { return v.Key.Source == sourceJWKS })
}

// configured says what a variant lacks in the configuration.
func (v *variantSpec) configured(c *Config, f *profileFile, settings map[string]string) error {
	for name, value := range v.Claims {
		t, _ := parseTemplate(value)
		for _, p := range t {
			if p.kind == partConfig && settings[p.name] == "" {
				return fmt.Errorf("claim %s needs settings.%s: set it", name, p.name)
			}
		}
	}
	switch {
	case v.Kind == kindNone:
		return nil
	case v.Key.Source == sourceJWKS && c.KeySet == nil:
		return errors.New("needs a key set: set key_set")
	case v.Key.Source == sourceJWKS:
		return nil
	case !slices.ContainsFunc(c.Secrets, func(s Secret) bool { return v.claims(s.Value, f) }):
		return errors.New("has no secret: set one of the form that this variant takes")
	}
	return nil
}

// claims reports whether a secret is for this variant, by its form: a variant
// may ask for a prefix; what has none is for the variants that ask for none.
func (v *variantSpec) claims(secret string, f *profileFile) bool {
	if v.Key.Source != "" || v.Kind == kindNone {
		return false
	}
	if v.Key.Prefix != "" {
		return strings.HasPrefix(secret, v.Key.Prefix)
	}
	return !slices.ContainsFunc(f.Verify, func(other variantSpec) bool {
		return other.Key.Prefix != "" && strings.HasPrefix(secret, other.Key.Prefix)
	})
}

// compileFor compiles a variant with what the configuration says about it.
// Variants with the same published keys share one set of them.
func (v *variantSpec) compileFor(c *Config, settings map[string]string, sets map[string]*keyCache) ([]*scheme, error) {
	schemes, err := v.compile(settings)
	if err != nil {
		return nil, err
	}
	set := sets[v.Key.URL]
	if v.Key.Source == sourceJWKS && set == nil {
		if set, err = newKeyCache(c, v.Key.URL); err != nil {
			return nil, fmt.Errorf("key_set: %w", err)
		}
		sets[v.Key.URL] = set
	}
	for _, s := range schemes {
		s.set = set
		if v.Kind == kindJWT {
			s.jwt = newJWTRule(v, settings)
		}
	}
	return schemes, nil
}

// giveSecrets gives every secret to the schemes that it is for. One that no
// scheme takes is a problem, not a leftover.
func (c *Config) giveSecrets(schemes []*scheme, p *problems) {
	for i, secret := range c.Secrets {
		if err := checkSecretText(secret.Value); err != nil {
			p.add("secrets[%d] %w", i, err)
			continue
		}
		if !secret.NotAfter.IsZero() && !secret.NotBefore.Before(secret.NotAfter) {
			p.add("secrets[%d]: not_after is not later than not_before", i)
		}
		taken := false
		for _, s := range schemes {
			if s.set != nil || s.kind == kindNone || s.spec.Key.Prefix != "" && !strings.HasPrefix(secret.Value, s.spec.Key.Prefix) {
				continue
			}
			if s.spec.Key.Prefix == "" && claimedByPrefix(schemes, secret.Value) {
				continue
			}
			taken = true
			if err := s.add(secret, i, c.AllowShortSecret); err != nil {
				p.add("secrets[%d] %w", i, err)
				break
			}
		}
		if !taken && len(schemes) > 0 {
			p.add("secrets[%d] is of a form that no configured variant takes: remove it, or name its variant", i)
		}
	}
}

func claimedByPrefix(schemes []*scheme, secret string) bool {
	return slices.ContainsFunc(schemes, func(s *scheme) bool {
		return s.spec.Key.Prefix != "" && strings.HasPrefix(secret, s.spec.Key.Prefix)
	})
}

// complete checks the schemes against each other and fills in the rest.
func (e *engine) complete(f *profileFile, settings map[string]string) error {
	var p problems
	for _, s := range e.schemes {
		if !slices.ContainsFunc(e.schemes, func(o *scheme) bool { return o.spec == s.spec && sameFamily(o, e.schemes[0]) }) {
			p.add("secrets and variants: %s and %s are read from different headers, and the sender must not choose between them: make two sources",
				e.schemes[0].name, s.name)
			break
		}
	}
	e.addChallenges(f, settings)
	e.replies = newReplies(f.Respond)
	if f.Fields == requiredFieldsGitHub {
		table, err := githubFields()
		if err != nil {
			return err
		}
		e.fields = table
	}
	for _, name := range f.KeepHeaders {
		e.keep = append(e.keep, textproto.CanonicalMIMEHeaderKey(name))
	}
	for _, s := range e.schemes {
		e.keepHeaders(s)
	}
	slices.Sort(e.keep)
	e.keep = slices.Compact(e.keep)
	return p.join()
}

// keepHeaders lists the headers that a scheme reads, so that they are stored.
// A token is a secret: its header is stored without its value.
func (e *engine) keepHeaders(s *scheme) {
	for _, at := range s.from {
		switch {
		case at.kind == inBasic:
			e.keep, e.redact = append(e.keep, "Authorization"), append(e.redact, "Authorization")
		case at.kind == inHeader:
			e.keep = append(e.keep, at.name)
			if s.kind == kindToken || s.kind == kindJWT && at.name == "Authorization" {
				e.redact = append(e.redact, at.name)
			}
		}
	}
	if s.time != nil && s.time.kind == inHeader {
		e.keep = append(e.keep, s.time.name)
	}
	if s.jwt != nil && s.jwt.header != nil {
		e.keep = append(e.keep, s.jwt.header.name)
	}
	for _, t := range []template{s.head, s.tail} {
		for _, p := range t {
			if p.kind == inHeader {
				e.keep = append(e.keep, p.places[0].name)
			}
		}
	}
	for _, r := range s.identity.types {
		if r.kind == inHeader {
			e.keep = append(e.keep, r.name)
		}
	}
}
