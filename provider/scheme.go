package provider

import (
	"crypto"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scheme is one variant of a profile, compiled with an operator's keys. It is
// never changed, so that any number of requests can use it.
type scheme struct {
	spec     *variantSpec
	name     string
	kind     string
	strength string

	from              []place // of the signature or the token
	grammar           grammar
	head              template // what is signed before the body
	tail              template // and after it
	body              bool     // whether the body as it is stands between them
	keyFirst, keyLast bool     // of a plain digest: where the key is written

	bound bool // whether the body is signed, as it is or in another form

	time      *place // nil where there is no signed time
	unit      string
	tolerance time.Duration // 0: no window

	proofs *regexp.Regexp // what a handshake signs for anyone; nil where none does

	keys []*key
	set  *keyCache // instead of keys

	jwt      *jwtRule
	identity *identity
}

// key is one secret, ready for use.
type key struct {
	secret Secret
	index  int        // in the configuration
	states *sync.Pool // of hash.Hash: keyed MACs
	public any        // a public key, or the bytes of a shared one
	digest [sha256.Size]byte
}

var macs = map[string]func() hash.Hash{
	"hmac-md5":    md5.New,
	"hmac-sha1":   sha1.New,
	"hmac-sha256": sha256.New,
	"hmac-sha384": sha512.New384,
	"hmac-sha512": sha512.New,
}

// compile makes the schemes of a variant: one, or one per family of header
// names where the profile lists alternatives (svix-id and webhook-id).
func (v *variantSpec) compile(settings map[string]string) ([]*scheme, error) {
	msg, err := parseTemplate(v.Msg)
	if err != nil {
		return nil, err
	}
	sources := v.From
	if v.Sig != nil {
		sources = v.Sig.From
	}
	families, err := expandPlaces(sources, settings)
	if err != nil {
		return nil, err
	}
	var timeFamilies [][]place
	if v.TS != nil {
		if timeFamilies, err = expandPlaces(texts{v.TS.From}, settings); err != nil {
			return nil, err
		}
	}
	schemes := make([]*scheme, len(families))
	for i, from := range families {
		s := &scheme{spec: v, name: v.Variant, kind: v.Kind, strength: v.strength(), from: from}
		s.splitMessage(msg.alternative(i).withSettings(settings))
		if v.TS != nil {
			s.time = &timeFamilies[min(i, len(timeFamilies)-1)][0]
			s.unit, s.tolerance = v.TS.Unit, v.TS.window()
		}
		if v.Sig != nil {
			s.grammar = v.newGrammar(s.head, s.time)
		}
		schemes[i] = s
	}
	return schemes, nil
}

// expandPlaces reads places of which the header names may have alternatives.
// Alternatives of one place are families; several places are one family.
func expandPlaces(from texts, settings map[string]string) ([][]place, error) {
	if len(from) == 1 {
		text := from[0]
		if rest, found := strings.CutPrefix(text, "header:{config:"); found {
			text = "header:" + settings[strings.TrimSuffix(rest, "}")]
		}
		places, err := parsePlaces(text)
		families := make([][]place, len(places))
		for i := range places {
			families[i] = places[i : i+1]
		}
		return families, err
	}
	var all []place
	for _, text := range from {
		places, err := parsePlaces(text)
		if err != nil || len(places) != 1 {
			return nil, fmt.Errorf("place %q: alternatives in a list of places are not supported", text)
		}
		all = append(all, places[0])
	}
	return [][]place{all}, nil
}

func (s *scheme) splitMessage(msg template) {
	msg = s.takeKey(msg)
	s.head, s.bound = msg, msg.bindsBody()
	for i, p := range msg {
		if p.kind == partBody {
			s.head, s.tail, s.body = msg[:i], msg[i+1:], true
		}
	}
	if s.kind == kindToken || s.kind == kindJWT || s.kind == kindNone {
		s.body = s.spec.bodyInToken()
		s.bound = s.body
	}
}

func (v *variantSpec) newGrammar(head template, at *place) grammar {
	g := grammar{
		kind: v.Sig.Grammar, separator: v.Sig.Sep, assign: v.Sig.Assign, group: v.Sig.GroupSep, names: v.Sig.Keys,
		prefix: v.Sig.StripPrefix, prefixCI: v.Sig.PrefixCI, encoding: v.Sig.Encoding, lowerCase: v.Sig.LowerCase,
	}
	switch {
	case v.Kind == kindMAC:
		g.size = macSize(v.Alg)
	case v.Alg == "ed25519":
		g.size = 64
	}
	if at != nil && at.kind == inSig {
		if n, ok := at.position(); ok {
			g.skip |= 1 << n
		}
	}
	for _, p := range head {
		for _, other := range p.places {
			if n, ok := other.position(); ok && other.kind == inSig {
				g.skip |= 1 << n
			}
		}
	}
	return g
}

// add gives the scheme a secret.
func (s *scheme) add(secret Secret, index int, allowShort bool) error {
	raw, err := s.spec.Key.bytes(secret.Value)
	if err != nil {
		return err
	}
	k := &key{secret: secret, index: index}
	k.secret.Value = "" // not needed any more
	switch {
	case s.kind == kindSig || s.kind == kindJWT && !s.jwt.symmetric:
		k.public, err = parsePublicKey(raw, s.spec.Key.Decode)
		if err == nil {
			err = s.checkPublicKey(k.public)
		}
	case s.kind == kindToken:
		k.digest = sha256.Sum256(raw)
		err = checkLength(raw, allowShort)
	case s.kind == kindJWT:
		k.public = padded(raw)
		err = checkLength(raw, allowShort)
	default:
		k.public = raw
		newHash := newMAC(s.spec.Alg, raw)
		k.states = &sync.Pool{New: func() any { return newHash() }}
		err = checkLength(raw, allowShort)
	}
	if err != nil {
		return err
	}
	s.keys = append(s.keys, k)
	return nil
}

// cryptoHash maps the hash in an algorithm's name.
func cryptoHash(alg string) crypto.Hash {
	if strings.HasSuffix(alg, strconv.Itoa(512)) {
		return crypto.SHA512
	}
	return crypto.SHA256
}
