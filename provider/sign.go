package provider

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"ichido.dev/ichido"
)

// SignConfig says who sends what, when.
type SignConfig struct {
	Variant string // of the profile; the first one by default

	// Secret is the shared secret or token as the sender shows it. For
	// Ed25519 it is the private key or its seed of 32 bytes, in hex, base64
	// or after "whsk_"; for other public-key schemes and RS256 tokens it is a
	// private key in PEM.
	Secret string

	ID       string            // for the header with the id, where there is one
	Type     string            // for the header with the type, where there is one
	Time     time.Time         // when it is sent
	KeyID    string            // of the key, for tokens
	Settings map[string]string // as in Config
}

// Sign returns the headers with which a sender would send body. It renders
// the same template as the verifier, so that the two cannot drift apart;
// published vectors pin both. The body is not changed: a time that the scheme
// reads from it must be there already.
func Sign(profile string, c SignConfig, body []byte) (http.Header, error) {
	f, err := lookup(profile)
	if err != nil {
		return nil, err
	}
	h, err := f.sign(&c, body, func(unit string) string { return formatTime(c.Time, unit) })
	if err != nil {
		return nil, fmt.Errorf("sign as provider %s: %w", profile, err)
	}
	return h, nil
}

// SignRequest is like [Sign], for senders that put their proof elsewhere too:
// it sets the headers of d, adds a parameter to its query, or puts the proof
// into its body, where the member for it must be there already.
func SignRequest(profile string, c SignConfig, d *ichido.Delivery) error {
	f, err := lookup(profile)
	if err != nil {
		return err
	}
	if err := f.signRequest(&c, d, func(unit string) string { return formatTime(c.Time, unit) }); err != nil {
		return fmt.Errorf("sign as provider %s: %w", profile, err)
	}
	return nil
}

// sign makes the headers; timeText writes the time in a unit.
func (f *profileFile) sign(c *SignConfig, body []byte, timeText func(unit string) string) (http.Header, error) {
	d := &ichido.Delivery{Body: body}
	if err := f.signRequest(c, d, timeText); err != nil {
		return nil, err
	}
	if d.RawQuery != "" || len(body) > 0 && &d.Body[0] != &body[0] {
		return nil, errors.New("the proof of this scheme is not in a header: use SignRequest")
	}
	return d.Header, nil
}

func (f *profileFile) signRequest(c *SignConfig, d *ichido.Delivery, timeText func(unit string) string) error {
	var p problems
	config := Config{Settings: c.Settings}
	settings := config.settings(f, &p)
	if err := p.join(); err != nil {
		return err
	}
	s, err := f.sender(c.Variant, settings)
	if err != nil {
		return err
	}
	d.Header = http.Header{"Content-Type": {"application/json"}}
	if f.Form && isForm(d.Body) {
		d.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	s.setUnsigned(d.Header, f, c)
	switch s.kind {
	case kindMAC, kindSig:
		message, fields, err := s.message(d, c, timeText)
		if err != nil {
			return err
		}
		signature, err := s.makeSignature(c.Secret, message)
		if err != nil {
			return err
		}
		return s.put(d, s.grammar.format(signature, fields))
	case kindToken:
		return s.sendToken(d, c)
	case kindJWT:
		return s.sendJWT(d, c, settings, timeText)
	}
	return nil
}

// put writes the proof where the scheme has it.
func (s *scheme) put(d *ichido.Delivery, text string) error {
	switch at := s.from[0]; at.kind {
	case inHeader:
		d.Header.Set(at.name, text)
	case inQuery:
		if d.RawQuery != "" {
			d.RawQuery += "&"
		}
		d.RawQuery += at.name + "=" + url.QueryEscape(text)
	case inJSON:
		_, m, refused := s.bodyMember(new(work), d, at)
		if refused != nil {
			return fmt.Errorf("the body must have the text member %s, once: the proof is put there", at.name)
		}
		quoted, err := jsontext.AppendQuote(nil, text)
		if err != nil {
			return err
		}
		d.Body = slices.Concat(d.Body[:m.start], quoted, d.Body[m.end:])
	default:
		return errors.New("the proof of this scheme cannot be put where it belongs")
	}
	return nil
}

// sender returns the scheme of a variant, as its sender uses it.
func (f *profileFile) sender(variant string, settings map[string]string) (*scheme, error) {
	for i := range f.Verify {
		if v := &f.Verify[i]; v.Variant == variant || variant == "" {
			schemes, err := v.compile(settings)
			if err != nil {
				return nil, err
			}
			return schemes[0], nil
		}
	}
	return nil, fmt.Errorf("there is no variant %q: use %s", variant, strings.Join(variantNames(f), ", "))
}

// setUnsigned sets the headers that tell and prove nothing.
func (s *scheme) setUnsigned(h http.Header, f *profileFile, c *SignConfig) {
	if c.ID != "" && len(f.UnsignedIDs) > 0 {
		h.Set(f.UnsignedIDs[0], c.ID)
	}
	for _, from := range s.spec.Events.Type {
		places, err := parsePlaces(from)
		if err == nil && places[0].kind == inHeader && c.Type != "" {
			h.Set(places[0].name, c.Type)
		}
	}
}

// message sets the headers that are signed and renders what is signed. fields
// are the other values of the signature header.
func (s *scheme) message(d *ichido.Delivery, c *SignConfig, timeText func(string) string) ([]byte, []field, error) {
	w := new(work)
	var fields []field
	if s.time != nil {
		w.timeText = timeText(s.unit)
		switch s.time.kind {
		case inHeader:
			d.Header.Set(s.time.name, w.timeText)
		case inSig:
			fields = append(fields, field{s.time.name, w.timeText})
			w.sig.addField(s.time.name, w.timeText)
		}
	}
	for _, p := range slices.Concat(s.head, s.tail) {
		switch p.kind {
		case inHeader:
			d.Header.Set(p.places[0].name, c.ID)
		case inSig:
			fields = append(fields, field{p.places[0].name, c.ID})
			w.sig.addField(p.places[0].name, c.ID)
		}
	}
	message, refused := s.append(nil, s.head, w, d)
	if s.body {
		message = append(message, d.Body...)
	}
	if refused == nil {
		message, refused = s.append(message, s.tail, w, d)
	}
	if refused != nil {
		return nil, nil, errors.New("an id without white space is needed for this scheme")
	}
	return message, fields, nil
}

func (s *scheme) makeSignature(secret string, message []byte) ([]byte, error) {
	if s.kind == kindMAC {
		key, err := s.spec.Key.bytes(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %w", err)
		}
		mac := newMAC(s.spec.Alg, key)()
		(&scheme{keyFirst: s.keyFirst, keyLast: s.keyLast}).writeMessage(mac, key, message, nil, nil)
		return mac.Sum(nil), nil
	}
	private, err := parsePrivateKey(secret)
	if err != nil {
		return nil, err
	}
	if edwards, ok := private.(ed25519.PrivateKey); ok && s.spec.Alg == "ed25519" {
		return ed25519.Sign(edwards, message), nil
	}
	hash := cryptoHash(s.spec.Alg)
	digest := hash.New()
	digest.Write(message)
	switch key := private.(type) {
	case *rsa.PrivateKey:
		if strings.HasPrefix(s.spec.Alg, "rsa-pss-") {
			return rsa.SignPSS(rand.Reader, key, hash, digest.Sum(nil), nil)
		}
		return rsa.SignPKCS1v15(rand.Reader, key, hash, digest.Sum(nil))
	case *ecdsa.PrivateKey:
		return ecdsa.SignASN1(rand.Reader, key, digest.Sum(nil))
	}
	return nil, errors.New("the private key is of another kind than the scheme's algorithm " + s.spec.Alg)
}

const whskPrefix = "whsk_"

// parsePrivateKey reads an Ed25519 key or seed as text, or any key in PEM.
func parsePrivateKey(text string) (crypto.PrivateKey, error) {
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		return nil, errors.New("secret is not a private key in PEM")
	}
	text = strings.TrimPrefix(text, whskPrefix)
	raw, err := hex.DecodeString(text)
	if err != nil {
		raw, err = base64.StdEncoding.DecodeString(text)
	}
	switch {
	case err == nil && len(raw) == ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(raw), nil
	case err == nil && len(raw) == ed25519.PrivateKeySize:
		return ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize]), nil
	}
	return nil, errors.New("secret is not an Ed25519 private key or seed, nor a private key in PEM")
}
