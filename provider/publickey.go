package provider

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"strings"

	"ichido.dev/ichido"
)

// checkSignatures verifies every candidate with every live public key.
func (s *scheme) checkSignatures(w *work, d *ichido.Delivery) (int, error) {
	w.message = append(w.message[:0], w.head...)
	if s.body {
		w.message = append(w.message, d.Body...)
	}
	w.message = append(w.message, w.tail...)
	if s.set != nil {
		return s.set.use(d.ReceivedAt, func(keys []publicKey) (int, error) {
			for i, k := range keys {
				if k.fits(s.spec.Alg) && s.checkCandidates(w, k.key) {
					return i, nil
				}
			}
			return 0, errMismatch
		})
	}
	index, live := -1, 0
	for _, k := range s.keys {
		if !k.secret.live(d.ReceivedAt) {
			continue
		}
		live++
		if s.checkCandidates(w, k.public) && index < 0 {
			index = k.index
		}
	}
	switch {
	case live == 0:
		return 0, errNoLiveSecret
	case index < 0:
		return 0, errMismatch
	}
	return index, nil
}

func (s *scheme) checkCandidates(w *work, public any) bool {
	matched := false
	for c := range w.n {
		if verifyWith(public, s.spec.Alg, w.message, w.macs[c][:w.sizes[c]]) {
			matched = true
		}
	}
	return matched
}

// verifyWith checks one signature with one public key.
func verifyWith(public any, alg string, message, signature []byte) bool {
	if edwards, ok := public.(ed25519.PublicKey); ok {
		return alg == "ed25519" && ed25519.Verify(edwards, message, signature)
	}
	h := cryptoHash(alg)
	digest := h.New()
	digest.Write(message)
	sum := digest.Sum(nil)
	switch public := public.(type) {
	case *ecdsa.PublicKey:
		return alg == "ecdsa-p256-sha256" && ecdsa.VerifyASN1(public, sum, signature)
	case *rsa.PublicKey:
		if strings.HasPrefix(alg, "rsa-pss-") {
			return rsa.VerifyPSS(public, h, sum, signature, nil) == nil
		}
		return strings.HasPrefix(alg, "rsa-pkcs1-") && rsa.VerifyPKCS1v15(public, h, sum, signature) == nil
	}
	return false
}

const minRSABits = 2048

// checkPublicKey ties the kind of a key to the algorithm.
func (s *scheme) checkPublicKey(public any) error {
	alg := s.spec.Alg
	if s.kind == kindJWT {
		return s.jwt.checkKey(public)
	}
	switch public := public.(type) {
	case ed25519.PublicKey:
		if alg == "ed25519" {
			return nil
		}
	case *ecdsa.PublicKey:
		if strings.HasPrefix(alg, "ecdsa-p256") && public.Curve == elliptic.P256() {
			return nil
		}
	case *rsa.PublicKey:
		if strings.HasPrefix(alg, "rsa-") {
			return checkRSA(public)
		}
	}
	return errors.New("is a public key of another kind than the scheme's algorithm " + alg)
}

func checkRSA(public *rsa.PublicKey) error {
	if public.N.BitLen() < minRSABits {
		return errors.New("is an RSA key of less than 2048 bits")
	}
	if public.Size() > maxSignature {
		return errors.New("is an RSA key of more than 4096 bits")
	}
	return nil
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
