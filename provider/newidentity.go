package provider

import "slices"

// newIdentity compiles how events of a scheme are identified. members are
// read in the request only where something needs them: GitHub's are not,
// unless a policy asks or the source answers errors for unreadable bodies.
func newIdentity(f *profileFile, s *scheme, c *Config, restricted bool, p *problems) *identity {
	e := s.spec.Events
	b := &identityBuilder{spec: s.spec}
	id := &identity{form: f.Form, timeSlot: -1, action: -1, repository: -1, keyIf: -1, keyMode: e.Key, fingerprintKey: e.Fingerprint == keyKey}
	if s.time != nil && s.time.kind == inJSON {
		id.timeSlot = b.slot(&b.members, s.time.path)
	}
	id.ids = b.refs(e.ID)
	id.types = b.refs(e.Type)
	if e.Need != "" {
		id.need = b.refs(texts{e.Need})
	}
	if e.KeyIf != "" {
		id.keyIf = b.refs(texts{e.KeyIf})[0].slot
	}
	b.key(id, e.Key, c, p)
	for _, name := range c.Fingerprint {
		places, err := parsePlaces("json:" + name)
		if err != nil || len(places) != 1 || !s.spec.signed(places[0]) {
			p.add("fingerprint: %q is not a member that the proof covers", name)
			continue
		}
		id.fingerprint = append(id.fingerprint, name)
		id.fingerprintSlot = append(id.fingerprintSlot, b.slot(&b.members, places[0].path))
	}
	needed := len(b.members) > 0
	if e.Action != "" {
		id.action = b.slot(&b.members, b.refs(texts{e.Action})[0].path)
	}
	if e.Repository != "" {
		id.repository = b.slot(&b.members, b.refs(texts{e.Repository})[0].path)
	}
	id.always = needed || b.usesForm || len(b.members) > 0 && (restricted || !c.acceptsUnreadable(f))
	id.members = newEnvelope(b.members)
	if len(b.claims) > 0 {
		id.claims = newEnvelope(b.claims)
	}
	return id
}

// identityBuilder collects the members that an identity reads.
type identityBuilder struct {
	spec     *variantSpec
	members  [][]string
	claims   [][]string
	usesForm bool
}

// slot returns the slot of a path, adding it when it is new.
func (b *identityBuilder) slot(paths *[][]string, path []string) int {
	for i, known := range *paths {
		if slices.Equal(known, path) {
			return i
		}
	}
	*paths = append(*paths, path)
	return len(*paths) - 1
}

func (b *identityBuilder) refs(from texts) []ref {
	var refs []ref
	for _, text := range from {
		places, _ := parsePlaces(text) // checked when the profile was read
		refs = append(refs, b.places(places)...)
	}
	return refs
}

func (b *identityBuilder) places(places []place) []ref {
	var refs []ref
	for _, at := range places {
		r := ref{place: at, slot: -1, signed: b.spec.signed(at) && b.spec.Kind != kindToken}
		switch at.kind {
		case inJSON:
			r.slot = b.slot(&b.members, at.path)
		case inClaim:
			r.slot = b.slot(&b.claims, at.path)
		case inForm:
			b.usesForm = true
		}
		refs = append(refs, r)
	}
	return refs
}

// key compiles the key template: the operator's, or the profile's.
func (b *identityBuilder) key(id *identity, text string, c *Config, p *problems) {
	if c.Key != "" {
		text, id.keyFirst = c.Key, true
	}
	if text == "" || text == keyBody || text == keySigned {
		return
	}
	t, err := b.spec.parseKey(text)
	if err != nil {
		p.add("key: %w", err)
		return
	}
	before := ""
	for i, part := range t {
		if part.kind == partLiteral {
			id.key = append(id.key, keyPart{literal: part.literal})
			before = part.literal
			continue
		}
		k := keyPart{refs: b.places(part.places), optional: part.optional}
		if i > 1 {
			k.before = before
		}
		id.key = append(id.key, k)
	}
}
