package provider

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strings"
)

// Some senders sign with a plain digest of the secret and the message instead
// of a MAC. With the secret in front, whoever has one signature can make that
// of a longer message; behind it, it rests on the digest having no collisions.
// What such a scheme proves is weak either way.

const digestPrefix = "digest-"

func isDigest(alg string) bool { return strings.HasPrefix(alg, digestPrefix) }

var digests = map[string]func() hash.Hash{
	"digest-sha1":   sha1.New,
	"digest-sha256": sha256.New,
	"digest-sha512": sha512.New,
}

// checkDigest ties {key} to the algorithms that need it.
func (v *variantSpec) checkDigest(p *problems, msg template) {
	keys := 0
	for _, part := range msg {
		if part.kind == partKey {
			keys++
		}
	}
	atEnd := len(msg) > 1 && (msg[0].kind == partKey || msg[len(msg)-1].kind == partKey)
	switch {
	case isDigest(v.Alg) && v.Kind == kindMAC && (keys != 1 || !atEnd):
		p.add("msg: a %s needs {key} once, as its first or last part", v.Alg)
	case !isDigest(v.Alg) && keys > 0:
		p.add("msg: {key} is for plain digests: the key of a MAC is not a part of the message")
	}
}

// newMAC returns the keyed hash of an algorithm. Of a plain digest it is not
// keyed yet: the key is written with the message.
func newMAC(alg string, key []byte) func() hash.Hash {
	if isDigest(alg) {
		return digests[alg]
	}
	return func() hash.Hash { return hmac.New(macs[alg], key) }
}

// size of a MAC or digest in bytes.
func macSize(alg string) int {
	if isDigest(alg) {
		return digests[alg]().Size()
	}
	return macs[alg]().Size()
}

// takeKey removes {key} from the message, so that nothing that is made of the
// message (a key of an event, a fingerprint) holds the secret.
func (s *scheme) takeKey(msg template) template {
	switch {
	case len(msg) > 0 && msg[0].kind == partKey:
		s.keyFirst = true
		return msg[1:]
	case len(msg) > 0 && msg[len(msg)-1].kind == partKey:
		s.keyLast = true
		return msg[:len(msg)-1]
	}
	return msg
}

// writeMessage hashes a signed message: head, then the body where it is a
// part of it, then tail.
func (s *scheme) writeMessage(mac hash.Hash, key, head, body, tail []byte) {
	if s.keyFirst {
		mac.Write(key)
	}
	mac.Write(head)
	if s.body {
		mac.Write(body)
	}
	mac.Write(tail)
	if s.keyLast {
		mac.Write(key)
	}
}
