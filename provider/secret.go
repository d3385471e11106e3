package provider

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"ichido.dev/ichido/internal/placeholder"
)

// Secret is one secret, or one public key, as the sender shows it. Several
// may be live at the same time while one replaces another; all of them are
// tried on every request. NotBefore and NotAfter bound when it counts, judged
// by the receipt of the delivery; zero means no bound.
type Secret struct {
	Value     string
	NotBefore time.Time
	NotAfter  time.Time
}

// Bounds on secrets. Published test vectors use shorter ones:
// Config.AllowShortSecret admits those.
const (
	maxSecrets     = 8
	minSecretBytes = 16 // decoded
	maxSecretBytes = 4096
)

// live reports whether the secret counts for a delivery received at t.
func (s *Secret) live(t time.Time) bool {
	return (s.NotBefore.IsZero() || !t.Before(s.NotBefore)) && (s.NotAfter.IsZero() || !t.After(s.NotAfter))
}

// checkSecretText refuses what cannot be a secret, whatever it decodes to. The
// error says what is wrong, never what the value is.
func checkSecretText(value string) error {
	if strings.HasPrefix(value, pemBegin) {
		value = strings.TrimSpace(value) // a block ends in a line break
	}
	switch {
	case value == "":
		return errors.New("is empty: set it, an empty secret would let anyone sign")
	case strings.TrimSpace(value) == "":
		return errors.New("is blank: set it")
	case strings.TrimSpace(value) != value:
		return errors.New("has white space at an end: remove it (a line break often comes from the file it is kept in)")
	case len(value) > maxSecretBytes:
		return fmt.Errorf("is longer than %d bytes", maxSecretBytes)
	case !utf8.ValidString(value):
		return errors.New("is not UTF-8 text: give it as the sender shows it")
	}
	if strings.Contains(value, "${") || strings.Contains(value, "{{") {
		return errors.New("holds an unresolved variable: resolve it before it is given here")
	}
	if placeholder.Is(value) {
		return errors.New("is a placeholder: put the real secret in its place")
	}
	if !strings.HasPrefix(value, pemBegin) && strings.ContainsFunc(value, unicode.IsControl) {
		return errors.New("holds a line break or another control character: give it as one line")
	}
	return nil
}

// keySpec says how the text of a secret becomes key bytes.
type keySpec struct {
	Decode      string `yaml:"decode"`
	StripPrefix string `yaml:"strip_prefix"`
	Suffix      string `yaml:"suffix"`
	Prefix      string `yaml:"prefix"` // secrets that start so belong to this variant
	Source      string `yaml:"source"` // "jwks": keys come from the pinned key set
	URL         string `yaml:"url"`    // of the pinned key set
}

// Key decoders.
const (
	decodeUTF8       = "utf8"
	decodeBase64Key  = "base64"
	decodeHexKey     = "hex"
	decodeWhsec      = "whsec"
	decodeWhsecUTF8  = "whsec-else-utf8"
	decodeWhpk       = "whpk"
	decodeSPKI       = "base64-spki"
	whsecPrefix      = "whsec_"
	whpkPrefix       = "whpk_"
	sourceJWKS       = "jwks"
	lineBreaks       = "\r\n"
	pemPublicKeyType = "PUBLIC KEY"
	pemBegin         = "-----BEGIN "
)

// bytes decodes the text of a secret.
func (k *keySpec) bytes(value string) ([]byte, error) {
	text := strings.TrimPrefix(value, k.StripPrefix)
	var key []byte
	var err error
	switch k.Decode {
	case decodeUTF8, "":
		key = []byte(text)
	case decodeBase64Key:
		key, err = decodeKeyBase64(text)
	case decodeHexKey:
		if key, err = hex.DecodeString(text); err != nil {
			err = errors.New("is not hexadecimal")
		}
	case decodeWhsec:
		key, err = decodeKeyBase64(strings.TrimPrefix(text, whsecPrefix))
	case decodeWhsecUTF8:
		if rest, found := strings.CutPrefix(text, whsecPrefix); found {
			key, err = decodeKeyBase64(rest)
		} else {
			key = []byte(text)
		}
	case decodeWhpk:
		key, err = decodeKeyBase64(strings.TrimPrefix(text, whpkPrefix))
	case decodeSPKI:
		key, err = decodeKeySPKI(text)
	}
	if err != nil {
		return nil, err
	}
	if len(key) == 0 {
		return nil, errors.New("decodes to nothing: give it as the sender shows it")
	}
	return append(key, k.Suffix...), nil
}

func decodeKeyBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, lineBreaks) {
		return nil, errors.New("is not base64 on one line")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("is not standard, padded base64: give it as the sender shows it")
	}
	return key, nil
}

// decodeKeySPKI reads a PEM block, or the base64 text inside one.
func decodeKeySPKI(text string) ([]byte, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return decodeKeyBase64(text)
	}
	if block.Type != pemPublicKeyType || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("is not one PEM block of type PUBLIC KEY")
	}
	return block.Bytes, nil
}

// checkLength refuses keys that can be guessed.
func checkLength(key []byte, allowShort bool) error {
	if len(key) < minSecretBytes && !allowShort {
		return fmt.Errorf("has only %d bytes after decoding, at least %d are needed: make a longer one at the sender (or set AllowShortSecret)", len(key), minSecretBytes)
	}
	return nil
}

// parsePublicKey reads the bytes of a public key: raw for Ed25519, or a
// SubjectPublicKeyInfo.
func parsePublicKey(key []byte, decode string) (any, error) {
	if decode == decodeSPKI {
		public, err := x509.ParsePKIXPublicKey(key)
		if err != nil {
			return nil, errors.New("is not a public key (SubjectPublicKeyInfo)")
		}
		if edwards, ok := public.(ed25519.PublicKey); ok {
			return checkEd25519(edwards)
		}
		return public, nil
	}
	return checkEd25519(key)
}

// checkEd25519 refuses points of small order: under such a key signatures for
// any message can be made without a private key.
func checkEd25519(key []byte) (ed25519.PublicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("is not an Ed25519 public key of %d bytes", ed25519.PublicKeySize)
	}
	point := bytes.Clone(key)
	point[31] &= 0x7f // the sign of x
	for _, small := range smallOrder {
		if hex.EncodeToString(point) == small {
			return nil, errors.New("is a public key of small order, for which anyone can sign: copy the key again from the sender")
		}
	}
	return ed25519.PublicKey(key), nil
}

// smallOrder are the y coordinates of the points of small order on Curve
// 25519 in its Edwards form, and their non-canonical encodings.
var smallOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}
