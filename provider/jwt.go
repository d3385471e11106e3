package provider

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"ichido.dev/ichido"
)

const maxJWT = 8 << 10 // bytes in a header

// jwtRule is what a token must hold, compiled.
type jwtRule struct {
	algorithms []jose.SignatureAlgorithm
	symmetric  bool
	prefix     string
	claims     map[string]string // exact values
	leeway     time.Duration
	iatLimit   time.Duration // for tokens without exp
	bodyHash   *bodyHashSpec
	times      *envelope // exp, nbf, iat, then the claims by name
	names      []string
	header     *place // an unsigned time that can only refuse
	unit       string
	tolerance  time.Duration
}

// newJWTRule compiles the JWT part of a variant.
func newJWTRule(v *variantSpec, settings map[string]string) *jwtRule {
	r := &jwtRule{
		prefix: v.StripPrefix, claims: map[string]string{},
		leeway:   time.Duration(v.Leeway) * time.Second,
		iatLimit: time.Duration(v.IATTolerance) * time.Second,
		bodyHash: v.BodyHash, symmetric: strings.HasPrefix(v.Algs[0], "HS"),
	}
	for _, alg := range v.Algs {
		r.algorithms = append(r.algorithms, jose.SignatureAlgorithm(alg))
	}
	paths := [][]string{{"exp"}, {"nbf"}, {"iat"}}
	for name, value := range v.Claims {
		t, _ := parseTemplate(value)
		for _, p := range t.withSettings(settings) {
			r.claims[name] += p.literal
		}
		r.names = append(r.names, name)
		paths = append(paths, []string{name})
	}
	if v.BodyHash != nil {
		paths = append(paths, strings.Split(v.BodyHash.Claim, "."))
	}
	r.times = newEnvelope(paths)
	if v.HeaderTS != nil {
		places, _ := parsePlaces(v.HeaderTS.From)
		r.header, r.unit = &places[0], v.HeaderTS.Unit
		r.tolerance = time.Duration(v.HeaderTS.Tolerance) * time.Second
	}
	return r
}

// looksLikeJWT reports whether value has the shape of a compact JWS: three
// parts of base64url with dots between. Nothing is parsed.
func looksLikeJWT(value, prefix string) bool {
	token, found := strings.CutPrefix(value, prefix)
	if !found || len(token) > maxJWT {
		return false
	}
	dots := 0
	for i, c := range []byte(token) {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
		if c == '.' && i > 0 && token[i-1] != '.' && i < len(token)-1 {
			dots++
		} else if !word {
			return false
		}
	}
	return dots == 2
}

// verifyJWT checks a token, then its claims, then the times.
func (s *scheme) verifyJWT(w *work, d *ichido.Delivery) (int, error) {
	value, refused := s.value(d, s.from[0])
	if refused != nil {
		return 0, refused
	}
	if !looksLikeJWT(value, s.jwt.prefix) {
		return 0, errMalformed
	}
	token := strings.TrimPrefix(value, s.jwt.prefix)
	// The library decodes the parts and verifies what they decode to, so that
	// another spelling of a part would verify too. There is only one here.
	for part := range strings.SplitSeq(token, ".") {
		if _, err := strictURL.DecodeString(part); err != nil {
			return 0, errMalformed
		}
	}
	end := strings.LastIndexByte(token, '.')
	jws, err := jose.ParseSignedCompact(token, s.jwt.algorithms)
	if err != nil {
		var wrong *jose.ErrUnexpectedSignatureAlgorithm
		if errors.As(err, &wrong) {
			return 0, errAlgorithm
		}
		return 0, errMalformed
	}
	index, payload, err := s.verifyJWS(jws, d)
	if err != nil {
		return 0, err
	}
	w.token = payload
	w.signedHash = sha256.Sum256([]byte(token[:end]))
	if err := s.jwt.check(w, d); err != nil {
		return 0, err
	}
	if s.identity.claims != nil {
		w.claims = make([]member, s.identity.claims.paths)
		s.identity.claims.read(&w.scanner, payload, w.claims)
	}
	return index, nil
}

// verifyJWS finds the key and verifies. The token's header chooses among our
// keys by an exact id at most; a key, or a place of keys, that it names itself
// is never looked at.
func (s *scheme) verifyJWS(jws *jose.JSONWebSignature, d *ichido.Delivery) (int, []byte, error) {
	header := jws.Signatures[0].Protected
	if _, critical := header.ExtraHeaders["crit"]; critical {
		return 0, nil, errMalformed
	}
	if s.set != nil {
		return s.verifyByID(jws, header, d)
	}
	index, live := -1, 0
	var payload []byte
	for _, k := range s.keys {
		if !k.secret.live(d.ReceivedAt) {
			continue
		}
		live++
		if text, err := jws.Verify(k.public); err == nil && index < 0 {
			index, payload = k.index, text
		}
	}
	switch {
	case live == 0:
		return 0, nil, errNoLiveSecret
	case index < 0:
		return 0, nil, errMismatch
	}
	return index, payload, nil
}

// verifyByID verifies with the key of a published set that the token names.
func (s *scheme) verifyByID(jws *jose.JSONWebSignature, header jose.Header, d *ichido.Delivery) (int, []byte, error) {
	if !validToken(header.KeyID) {
		return 0, nil, errKeyUnknown
	}
	var payload []byte
	index, err := s.set.use(d.ReceivedAt, func(keys []publicKey) (int, error) {
		found := -1
		for i, k := range keys {
			if k.id == header.KeyID && k.fits(header.Algorithm) {
				if found >= 0 {
					return 0, errKeyUnknown // two keys of one id: neither is the one
				}
				found = i
			}
		}
		if found < 0 {
			return 0, errKeyUnknown
		}
		var err error
		if payload, err = jws.Verify(keys[found].key); err != nil {
			return 0, errMismatch
		}
		return found, nil
	})
	return index, payload, err
}

// check judges the claims of a token that verified.
func (r *jwtRule) check(w *work, d *ichido.Delivery) error {
	members := make([]member, r.times.paths)
	if r.times.read(&w.scanner, w.token, members) != envelopeObject {
		return errMalformed
	}
	for i, name := range r.names {
		if !claimHolds(w.token, members[3+i], r.claims[name]) {
			if name == "aud" {
				return errAudience
			}
			return errClaim
		}
	}
	if r.bodyHash != nil && !r.bodyMatches(w, members[len(members)-1], d.Body) {
		return errBodyHash
	}
	if err := r.checkTimes(w, members, d.ReceivedAt); err != nil {
		return err
	}
	return r.checkHeader(d)
}

// claimHolds reports whether a claim is exactly want, or a list that has it.
func claimHolds(token []byte, m member, want string) bool {
	if m.state != memberFound || want == "" {
		return false
	}
	raw := m.text(token)
	if text, ok := unquote(raw); ok {
		return text == want
	}
	scanner := new(jsonScanner)
	scanner.reset(raw)
	if open, err := scanner.decoder.ReadToken(); err != nil || open.Kind() != '[' {
		return false
	}
	for scanner.decoder.PeekKind() == '"' {
		item, err := scanner.decoder.ReadToken()
		if err != nil {
			return false
		}
		if item.String() == want {
			return true
		}
	}
	return false
}

func (r *jwtRule) checkTimes(w *work, members []member, now time.Time) error {
	exp, hasExp, okExp := claimTime(w.token, members[0])
	nbf, hasNbf, okNbf := claimTime(w.token, members[1])
	iat, hasIat, okIat := claimTime(w.token, members[2])
	if !okExp || !okNbf || !okIat {
		return errMalformed
	}
	switch {
	case !hasExp && (r.iatLimit == 0 || !hasIat):
		return errExpired // a token that never ends is refused
	case hasExp && !now.Before(exp.Add(r.leeway)):
		return errExpired
	case hasNbf && now.Before(nbf.Add(-r.leeway)):
		return errNotYetValid
	case hasIat && now.Before(iat.Add(-max(r.leeway, r.tolerance, time.Minute))):
		return errNotYetValid
	}
	if hasIat {
		w.time = iat
	}
	if !hasExp {
		return fresh(iat, now, unitSeconds, r.iatLimit)
	}
	return nil
}

// claimTime reads a time claim: whole seconds, or seconds with a fraction
// that is dropped.
func claimTime(token []byte, m member) (t time.Time, present, ok bool) {
	if m.state == memberMissing {
		return t, false, true
	}
	if m.state != memberFound {
		return t, true, false
	}
	whole, fraction, _ := strings.Cut(string(m.text(token)), ".")
	if strings.Trim(fraction, "0123456789") != "" {
		return t, true, false
	}
	n, valid := parseDigits(whole, 1, 11)
	return time.Unix(n, 0), true, valid
}

// checkHeader judges a time outside the token. It proves nothing, for it is
// not signed; an old one is refused all the same.
func (r *jwtRule) checkHeader(d *ichido.Delivery) error {
	if r.header == nil {
		return nil
	}
	values := d.Header[r.header.name]
	switch {
	case len(values) == 0:
		return errTimeMissing
	case len(values) > 1:
		return errRepeated
	}
	t, ok := parseTime(values[0], r.unit)
	if !ok {
		return errTimeMalformed
	}
	return fresh(t, d.ReceivedAt, r.unit, r.tolerance)
}

func (r *jwtRule) bodyMatches(w *work, m member, body []byte) bool {
	if m.state != memberFound {
		return false
	}
	text, ok := unquote(m.text(w.token))
	if !ok {
		return false
	}
	g := grammar{encoding: r.bodyHash.Encoding, size: sha256.Size}
	n, ok := g.decode(w.macs[0][:], &w.text, text)
	digest := sha256.Sum256(body)
	return ok && subtle.ConstantTimeCompare(digest[:], w.macs[0][:n]) == 1
}

// checkKey ties the kind of a key to the algorithms.
func (r *jwtRule) checkKey(public any) error {
	for _, alg := range r.algorithms {
		if (publicKey{key: public}).fits(string(alg)) {
			if key, ok := public.(*rsa.PublicKey); ok {
				return checkRSA(key)
			}
			return nil
		}
	}
	return errors.New("is a public key of another kind than the scheme's algorithms")
}

// publicKey is a key of a published set.
type publicKey struct {
	id  string
	alg string // "" when the set does not say
	key any
}

// fits reports whether the key may be used with an algorithm.
func (k publicKey) fits(alg string) bool {
	switch key := k.key.(type) {
	case ed25519.PublicKey:
		return alg == "ed25519" || alg == "EdDSA"
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "rsa-") || strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && (k.alg == "" || k.alg == alg)
	case *ecdsa.PublicKey:
		curves := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521(), "ecdsa-p256-sha256": elliptic.P256()}
		return curves[alg] == key.Curve
	case []byte:
		return strings.HasPrefix(alg, "HS")
	}
	return false
}
