package provider

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"ichido.dev/ichido"
)

func (s *scheme) sendToken(d *ichido.Delivery, c *SignConfig) error {
	if err := checkSecretText(c.Secret); err != nil {
		return fmt.Errorf("secret %w", err)
	}
	if s.from[0].kind == inBasic {
		d.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Secret)))
		return nil
	}
	return s.put(d, s.spec.StripPrefix+c.Secret)
}

// sendJWT makes a token that says what the scheme asks for and ends in an
// hour.
func (s *scheme) sendJWT(d *ichido.Delivery, c *SignConfig, settings map[string]string, timeText func(string) string) error {
	rule := newJWTRule(s.spec, settings)
	var key any = padded([]byte(c.Secret))
	if !rule.symmetric {
		var err error
		if key, err = parsePrivateKey(c.Secret); err != nil {
			return err
		}
	}
	payload, err := s.tokenClaims(rule, d, c)
	if err != nil {
		return err
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: rule.algorithms[0], Key: jose.JSONWebKey{Key: key, KeyID: c.KeyID}}, options)
	if err != nil {
		return errors.New("the key does not fit the scheme's algorithm")
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return err
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		return err
	}
	if c.ID != "" && s.spec.HeaderTS != nil {
		d.Header.Set("Webhook-Id", c.ID)
	}
	if rule.header != nil {
		d.Header.Set(rule.header.name, timeText(rule.unit))
	}
	return s.put(d, rule.prefix+token)
}

// tokenClaims are the claims that the scheme asks for: its own, the times, the
// hash of the body, and the id where the token names it.
func (s *scheme) tokenClaims(rule *jwtRule, d *ichido.Delivery, c *SignConfig) ([]byte, error) {
	claims := map[string]any{"iat": c.Time.Unix(), "exp": c.Time.Add(time.Hour).Unix()}
	for name, value := range rule.claims {
		claims[name] = value
	}
	bind := func(h *bodyHashSpec, text []byte) {
		if h != nil {
			g := grammar{encoding: h.Encoding}
			digest := sha256.Sum256(text)
			claims[h.Claim] = g.encode(digest[:])
		}
	}
	bind(rule.bodyHash, d.Body)
	bind(rule.urlHash, []byte(rule.url))
	if rule.bodyClaim != "" {
		claims[rule.bodyClaim] = string(d.Body)
	}
	for _, from := range s.spec.Events.ID {
		if places, err := parsePlaces(from); err == nil && places[0].kind == inClaim {
			claims[places[0].name] = c.ID
		}
	}
	return json.Marshal(claims)
}
