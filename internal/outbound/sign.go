package outbound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Lengths of a signing key in bytes, as the Standard Webhooks specification
// sets them.
const (
	minKey = 24
	maxKey = 64
)

// Signer signs messages as the Standard Webhooks specification 1.0.0 says:
// HMAC-SHA256 over "{id}.{unix seconds}.{body}". It never shows its keys.
type Signer struct{ keys [][]byte }

// NewSigner returns a signer with one or several secrets of the form "whsec_"
// and base64. With several, a message carries one signature by each, so that
// receivers can move from one secret to the next.
func NewSigner(secrets ...string) (*Signer, error) {
	if len(secrets) == 0 {
		return nil, errors.New("signing secret: there is none")
	}
	s := &Signer{}
	for i, text := range secrets {
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("signing secret %d: %w", i+1, err)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

func parseKey(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return nil, errors.New(`must start with "whsec_"`)
	}
	if strings.ContainsAny(encoded, "\r\n") { // the decoder skips them
		return nil, errors.New("must be on one line")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, errors.New(`must be standard base64 after "whsec_"`)
	}
	if len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("must hold %d to %d bytes", minKey, maxKey)
	}
	if isOneByte(key) {
		return nil, errors.New("must be random")
	}
	return key, nil
}

// isOneByte reports whether a key is one byte again and again, as examples
// and uninitialised memory have it.
func isOneByte(key []byte) bool {
	for _, b := range key {
		if b != key[0] {
			return false
		}
	}
	return true
}

// Sign returns the value of webhook-signature for a message: one "v1,…" per
// secret, separated by spaces.
func (s *Signer) Sign(id string, unix int64, body []byte) string {
	var b strings.Builder
	for i, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id))
		mac.Write([]byte{'.'})
		mac.Write(strconv.AppendInt(nil, unix, 10))
		mac.Write([]byte{'.'})
		mac.Write(body)
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("v1,")
		b.WriteString(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return b.String()
}

// String hides the keys from everything that prints.
func (s *Signer) String() string { return fmt.Sprintf("Signer(%d keys)", len(s.keys)) }

// GoString hides the keys from "%#v".
func (s *Signer) GoString() string { return s.String() }
