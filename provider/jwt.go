package provider

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
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
	unending   bool          // tokens may have neither exp nor iat
	bodyHash   *bodyHashSpec
	bodyClaim  string
	urlHash    *bodyHashSpec
	url        string
	times      *envelope // exp, nbf, iat, then the claims by name, then the bindings
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
		iatLimit: time.Duration(v.IATTolerance) * time.Second, unending: v.Unending,
		bodyHash: v.BodyHash, bodyClaim: v.BodyClaim, urlHash: v.URLHash, url: settings[publicURL], symmetric: strings.HasPrefix(v.Algs[0], "HS"),
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
	for _, claim := range r.bindings() {
		paths = append(paths, strings.Split(claim, "."))
	}
	r.times = newEnvelope(paths)
	if v.HeaderTS != nil {
		places, _ := parsePlaces(v.HeaderTS.From)
		r.header, r.unit = &places[0], v.HeaderTS.Unit
		r.tolerance = v.HeaderTS.window()
	}
	return r
}

// bindings are the claims that bind the token to the request.
func (r *jwtRule) bindings() (claims []string) {
	if r.bodyHash != nil {
		claims = append(claims, r.bodyHash.Claim)
	}
	if r.urlHash != nil {
		claims = append(claims, r.urlHash.Claim)
	}
	if r.bodyClaim != "" {
		claims = append(claims, r.bodyClaim)
	}
	return claims
}

// padded returns an HMAC key of a token with zeros behind it, to the length
// that the library asks for. HMAC itself adds zeros to a short key, so that it
// is the same key; senders do give shorter secrets than RFC 7518 wants.
func padded(key []byte) []byte {
	const longest = sha512.Size // of HS512
	return append(key[:len(key):len(key)], make([]byte, max(0, longest-len(key)))...)
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
