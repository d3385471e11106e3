package provider

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"ichido.dev/ichido"
)

// The closed sets of the language.
var (
	macAlgs    = []string{"digest-sha1", "digest-sha256", "digest-sha512", "hmac-md5", "hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"}
	sigAlgs    = []string{"ed25519", "ecdsa-p256-sha256", "rsa-pkcs1-sha256", "rsa-pkcs1-sha512", "rsa-pss-sha256", "rsa-pss-sha512"}
	jwtHMAC    = []string{"HS256", "HS384", "HS512"}
	jwtPublic  = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	decoders   = []string{"", decodeUTF8, decodeBase64Key, decodeHexKey, decodeWhsec, decodeWhsecUTF8, decodeWhpk, decodeSPKI}
	units      = []string{unitSeconds, unitMillis, unitRFC3339, unitISO, unitHTTP}
	grammars   = []string{grammarRaw, grammarList, grammarPositional, grammarKV, grammarTagged}
	encodings  = []string{encodingHex, encodingBase64, encodingBase64URL, encodingB64OfHex}
	retryKinds = []string{"resigned", "identical", "none", "unknown"}

	profileID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	// What a signed message may be made of.
	signable = []string{partLiteral, partBody, partDigest, partTime, partConfig, partMethod, partKey, inHeader, inSig}

	// An echoed value is drawn from characters that mean nothing to a
	// browser, and has a bound: a handshake is no mirror and no oracle.
	echoPattern = regexp.MustCompile(`^\^\[[A-Za-z0-9._~+/=\-]+\]\{1,(?:[1-9][0-9]?|[1-4][0-9][0-9]|50[0-9]|51[0-2])\}\$$`)
)

// problems collects errors, so that all are reported together.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (p problems) join() error { return errors.Join(p...) }

// check refuses whatever the language does not allow.
func (f *profileFile) check() error {
	var p problems
	if !profileID.MatchString(f.ID) {
		p.add("id must be 1 to 40 lower-case letters, digits and hyphens")
	}
	if len(f.Verify) == 0 {
		p.add("verify is empty: a profile needs at least one variant")
	}
	if f.Retry != "" && !slices.Contains(retryKinds, f.Retry) {
		p.add("retry %q is unknown: use %s", f.Retry, strings.Join(retryKinds, ", "))
	}
	if f.Fields != "" && f.Fields != requiredFieldsGitHub {
		p.add("required_fields %q is unknown", f.Fields)
	}
	seen := map[string]bool{}
	for i := range f.Verify {
		v := &f.Verify[i]
		if seen[v.Variant] {
			p.add("variant %q occurs twice", v.Variant)
		}
		seen[v.Variant] = true
		v.check(&p, f)
	}
	f.checkSettings(&p)
	for i := range f.Challenge {
		f.Challenge[i].check(&p, f)
	}
	for verdict, reply := range f.Respond {
		reply.check(&p, "respond "+verdict)
	}
	return p.join()
}

// publicURL is the setting that holds the URL as the sender was told it. The
// URL of a request is never used: a proxy can change it, and so can anyone.
const publicURL = "public_url"

// checkSettings refuses a signed message with a setting that may be left out:
// it would be signed as nothing.
func (f *profileFile) checkSettings(p *problems) {
	set := map[string]bool{}
	for _, s := range f.Settings {
		set[s.Name] = s.Required || s.Default != ""
	}
	for _, v := range f.Verify {
		if v.URLHash != nil && !set[publicURL] {
			p.add("variant %q: url_hash is of settings.%s, which is no setting with required", v.Variant, publicURL)
		}
		msg, _ := parseTemplate(v.Msg)
		for _, part := range msg {
			if part.kind == partConfig && !set[part.name] {
				p.add("variant %q: msg holds {config:%s}, which is no setting with required or a default", v.Variant, part.name)
			}
		}
	}
}

func (v *variantSpec) check(p *problems, f *profileFile) {
	before := len(*p)
	switch v.Kind {
	case kindMAC, kindSig:
		v.checkMessage(p)
	case kindToken:
		v.checkTokenPlaces(p)
	case kindJWT:
		v.checkJWT(p)
	case kindNone:
		if !v.WeakOK {
			p.add("kind none proves nothing: set weak_ok if that is meant")
		}
	default:
		p.add("kind %q is unknown: use mac, sig, token, jwt or none", v.Kind)
	}
	if !slices.Contains(decoders, v.Key.Decode) {
		p.add("key.decode %q is unknown", v.Key.Decode)
	}
	if v.Key.Source != "" && (v.Key.Source != sourceJWKS || !strings.HasPrefix(v.Key.URL, "https://")) {
		p.add("key.source must be jwks, with a pinned https url")
	}
	checkTime(p, "header_ts", v.HeaderTS)
	if len(*p) == before {
		v.checkEvents(p)
	}
	for i := before; i < len(*p); i++ {
		(*p)[i] = fmt.Errorf("variant %q: %w", v.Variant, (*p)[i])
	}
}

// checkMessage checks what is special to mac and sig: a signed message.
func (v *variantSpec) checkMessage(p *problems) {
	algs := macAlgs
	if v.Kind == kindSig {
		algs = sigAlgs
	}
	if !slices.Contains(algs, v.Alg) {
		p.add("alg %q is unknown: use one of %s", v.Alg, strings.Join(algs, ", "))
	}
	msg, err := parseTemplate(v.Msg)
	if err != nil {
		p.add("msg: %w", err)
		return
	}
	bodies := 0
	for _, part := range msg {
		if part.kind == partBody || part.kind == partDigest {
			bodies++
		}
		member := part.kind == inJSON && !msg.bindsBody() && v.WeakOK && len(part.places) == 1
		if !slices.Contains(signable, part.kind) && !member || part.optional {
			p.add("msg: a placeholder {%s:...}, or one that may be missing, cannot be signed", part.kind)
		}
	}
	if bodies > 1 {
		p.add("msg: {body} occurs twice")
	}
	if bodies == 0 && !v.WeakOK {
		p.add("msg does not cover {body}: anyone who sees a delivery could change it; set weak_ok if that is meant")
	}
	v.checkDigest(p, msg)
	v.checkSig(p)
	if v.TS == nil {
		if msg.has(partTime) {
			p.add("msg has {ts}, but ts is not set")
		}
		return
	}
	checkTime(p, "ts", v.TS)
	inside := strings.HasPrefix(v.TS.From, inJSON+":") && (bodies == 1 || msg.coversText(v.TS.From))
	if !msg.has(partTime) && !inside {
		v.TS = nil // a time that the signature does not cover is no time
	}
}

func (v *variantSpec) checkSig(p *problems) {
	s := v.Sig
	if s == nil {
		p.add("sig is missing: say where the signature is")
		return
	}
	if len(s.From) == 0 {
		p.add("sig.from is missing")
	}
	for _, from := range s.From {
		checkPlace(p, "sig.from", from, inHeader, inQuery, inJSON, inForm)
	}
	if !slices.Contains(grammars, s.Grammar) {
		p.add("sig.grammar %q is unknown: use one of %s", s.Grammar, strings.Join(grammars, ", "))
	}
	if !slices.Contains(encodings, s.Encoding) {
		p.add("sig.encoding %q is unknown: use one of %s", s.Encoding, strings.Join(encodings, ", "))
	}
	if s.Grammar != grammarRaw && s.Sep == "" {
		p.add("sig.sep is missing")
	}
	if s.Grammar == grammarKV || s.Grammar == grammarTagged {
		if s.Assign == "" || len(s.Keys) == 0 || slices.Contains(s.Keys, "") {
			p.add("sig.assign and sig.keys are needed by grammar %s", s.Grammar)
		}
	} else if len(s.Keys) > 0 || s.Assign != "" {
		p.add("sig.keys and sig.assign mean nothing to grammar %s", s.Grammar)
	}
	if s.LowerCase && s.Encoding != encodingHex {
		p.add("sig.lower_case is for encoding hex")
	}
	if s.PrefixCI && s.StripPrefix == "" {
		p.add("sig.prefix_ci is for a strip_prefix")
	}
}

func (v *variantSpec) checkJWT(p *problems) {
	v.checkFrom(p, inHeader, inQuery, inBody)
	if len(v.Algs) == 0 {
		p.add("algs is missing: the algorithm is never the sender's choice")
	}
	hmacs := 0
	for _, alg := range v.Algs {
		switch {
		case slices.Contains(jwtHMAC, alg):
			hmacs++
		case !slices.Contains(jwtPublic, alg):
			p.add("algs: %q is not supported, and \"none\" never is", alg)
		}
	}
	if hmacs > 0 && hmacs < len(v.Algs) {
		p.add("algs mixes HMAC and public keys: a public key could be taken for an HMAC key")
	}
	if hmacs > 0 && v.Key.Source == sourceJWKS {
		p.add("a public key set holds no HMAC keys")
	}
	if v.Unending && !v.bodyInToken() {
		p.add("unending is for tokens that bind the body: any other that never ends could be sent with any body for ever")
	}
	if v.Leeway < 0 || v.Leeway > 300 || v.IATTolerance < 0 || v.IATTolerance > int(maxTolerance/time.Second) {
		p.add("leeway must be 0 to 300 seconds, iat_tolerance 0 to 3600")
	}
	for name, value := range v.Claims {
		t, err := parseTemplate(value)
		if err != nil || slices.ContainsFunc(t, func(p part) bool { return p.kind != partLiteral && p.kind != partConfig }) || len(t) == 0 {
			p.add("claims.%s must be text or {config:NAME}", name)
		}
	}
	v.BodyHash.check(p, "body_hash")
	v.URLHash.check(p, "url_hash")
}

func (h *bodyHashSpec) check(p *problems, field string) {
	if h == nil {
		return
	}
	if h.Claim == "" || h.Alg != "sha256" || !slices.Contains([]string{encodingHex, encodingBase64, encodingBase64URL}, h.Encoding) {
		p.add("%s needs a claim, alg sha256, and encoding hex, base64 or base64url", field)
	}
}

func (v *variantSpec) checkFrom(p *problems, kinds ...string) {
	if len(v.From) == 0 {
		p.add("from is missing")
	}
	for _, from := range v.From {
		checkPlace(p, "from", from, kinds...)
	}
}

// checkPlace checks one place; a header may be named by a setting.
func checkPlace(p *problems, field, text string, kinds ...string) {
	if strings.HasPrefix(text, "header:{config:") && strings.HasSuffix(text, "}") {
		return
	}
	places, err := parsePlaces(text)
	if err != nil {
		p.add("%s: %w", field, err)
		return
	}
	if !slices.Contains(kinds, places[0].kind) {
		p.add("%s: place %q is not possible here: use %s", field, text, strings.Join(kinds, ", "))
	}
}

func checkTime(p *problems, field string, ts *tsSpec) {
	if ts == nil {
		return
	}
	checkPlace(p, field+".from", ts.From, inHeader, inSig, inJSON)
	if !slices.Contains(units, ts.Unit) {
		p.add("%s.unit %q is unknown: use one of %s", field, ts.Unit, strings.Join(units, ", "))
	}
	tolerance := ts.window()
	switch {
	case ts.EventTime && ts.Tolerance == nil: // no window: honest retries carry the old time
	case tolerance <= 0:
		p.add("%s.tolerance must be positive", field)
	case tolerance > maxTolerance && !ts.LongOK:
		p.add("%s.tolerance is more than an hour: set long_ok if that is meant", field)
	}
}

func (r *replySpec) check(p *problems, field string) {
	if r.Status < 200 || r.Status > 299 {
		p.add("%s.status must be 2xx", field)
	}
	if r.ContentType == "" || strings.Contains(r.ContentType, "html") {
		p.add("%s.content_type must be set, and not to HTML", field)
	}
}

// strength is computed from the scheme, never declared.
func (v *variantSpec) strength() string {
	msg, _ := parseTemplate(v.Msg)
	switch {
	case v.Kind == kindNone || isDigest(v.Alg):
		return ichido.Weak
	case v.Kind != kindToken && msg.bindsBody(), v.bodyInToken():
		return ichido.Verified
	default:
		return ichido.Authenticated
	}
}

// bodyInToken reports whether a JWT binds the body: by its hash, or by being it.
func (v *variantSpec) bodyInToken() bool {
	return v.Kind == kindJWT && (v.BodyHash != nil || v.BodyClaim != "" || slices.Contains(v.From, inBody))
}
