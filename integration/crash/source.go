package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ichido.dev/ichido"
)

// source is one endpoint of a target, and how its sender signs.
type source struct {
	name, provider, secret string
	path                   string
	hasID                  bool // the sender signs an id, so there can be conflicts
	purges                 bool // bodies go soon after the event is done
	forwarded              bool // effects are seen at the destination
	sign                   func(h http.Header, secret, id string, body []byte, now time.Time)
	key                    func(id string, body []byte) string
}

func byID(id string, _ []byte) string { return id }

func byBody(_ string, body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func macOf(secret, text string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	mac.Write(body)
	return mac.Sum(nil)
}

func signGitHub(h http.Header, secret, id string, body []byte, _ time.Time) {
	h.Set("X-Github-Event", "payment")
	h.Set("X-Github-Delivery", id)
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(macOf(secret, "", body)))
}

func signStripe(h http.Header, secret, _ string, body []byte, now time.Time) {
	t := strconv.FormatInt(now.Unix(), 10)
	h.Set("Stripe-Signature", "t="+t+",v1="+hex.EncodeToString(macOf(secret, t+".", body)))
}

func signStandard(h http.Header, secret, id string, body []byte, now time.Time) {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	t := strconv.FormatInt(now.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", t)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(macOf(string(key), id+"."+t+".", body)))
}

func signPlain(h http.Header, secret, _ string, body []byte, now time.Time) {
	t := strconv.FormatInt(now.Unix(), 10)
	h.Set("X-Timestamp", t)
	h.Set("X-Signature", hex.EncodeToString(macOf(secret, t+".", body)))
}

// The secrets are canaries too: none may appear in any output.
func gatewaySources() []source {
	return []source{
		{
			name: "github", provider: "github", secret: "canary-github-3f1d77c0a9b24e6d", path: "/hooks/github",
			forwarded: true, sign: signGitHub, key: byBody,
		},
		{
			name: "stripe", provider: "stripe", secret: "whsec_canaryStripe5b0e8d1c9a7f4e32", path: "/hooks/stripe",
			hasID: true, forwarded: true, sign: signStripe, key: byID,
		},
		{
			name: "standard", provider: "standard-webhooks", secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte("canary-standard-9c41e7d2b65f40aa")),
			path: "/hooks/standard", hasID: true, purges: true, forwarded: true, sign: signStandard, key: byID,
		},
	}
}

func ledgerSources() []source {
	return []source{
		{name: "now", provider: "hmac", secret: "canary-ledger-now-1d2c3b4a59687f60", path: "/now", hasID: true, sign: signPlain, key: byID},
		{name: "later", provider: "hmac", secret: "canary-ledger-later-60f7865a4b3c2d1e", path: "/later", hasID: true, sign: signPlain, key: byID},
	}
}

// amountOf is what event n adds to the total of the ledger.
func amountOf(n int) int { return n%97 + 1 }

// bodyOf returns the body of an event: always the same for the same event,
// different for every event, run and variant.
func bodyOf(seed uint64, n int, variant string) []byte {
	const filler = "the quick brown fox jumps over the lazy dog and looks back; "
	b := fmt.Appendf(nil, `{"id":%q,"type":"payment.paid","object":"event","amount":%d,"variant":%q,"note":"`, idOf(seed, n), amountOf(n), variant)
	for len(b) < 400+n%1800 {
		b = append(b, filler...)
	}
	return append(b, `"}`...)
}

func idOf(seed uint64, n int) string { return fmt.Sprintf("evt_%x_%d", seed, n) }

// Kinds of identity: what verified bytes become.
const (
	anEvent      byte = 0
	quarantine   byte = 1
	hashedLength      = 16
)

// hashOf returns the identity that is promised for a key: the first half of
// SHA-256 over source, kind and key.
func hashOf(s *source, kind byte, key string) (hash [hashedLength]byte) {
	h := sha256.New()
	h.Write([]byte(s.name))
	h.Write([]byte{kind})
	h.Write([]byte(key))
	copy(hash[:], h.Sum(nil))
	return hash
}

// eventID returns the id that is shown for an identity.
func eventID(hash [hashedLength]byte) string {
	r := ichido.Record{Hash: hash}
	return r.ID()
}
