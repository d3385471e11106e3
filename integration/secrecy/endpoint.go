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
)

// endpoint is one source of the configuration and how its sender proves
// itself.
type endpoint struct {
	name, provider string
	secret         string // as the operator writes it
	pathToken      string
	signs          bool // else the secret itself is sent
	timed          bool // a signed time can be stale
	prove          func(h http.Header, secret, id string, body []byte, at time.Time) (mac []byte)
}

// planted is the name of a source: it is meant to be seen, and so it is what
// the search is tried on.
const planted = "planted-7a6b5c4d3e2f1a0b"

// pathTokens and secrets begin with what tells one canary from another.
func endpoints() []endpoint {
	return []endpoint{
		{name: planted, provider: "github", secret: "c1-github-secret-9f8e7d6c5b", signs: true, prove: github},
		{name: "stripe", provider: "stripe", secret: "whsec_c2StripeSecret8e7d6c5b4a", signs: true, timed: true, prove: stripe},
		{name: "standard", provider: "standard-webhooks", secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte("c3-standard-webhooks-key")), signs: true, timed: true, prove: standard},
		{name: "slack", provider: "slack", secret: "c4-slack-secret-7d6c5b4a39", signs: true, timed: true, prove: slack},
		{name: "shopify", provider: "shopify", secret: "c5-shopify-secret-6c5b4a3928", signs: true, prove: shopify},
		{name: "plain", provider: "hmac", secret: "c6-hmac-secret-5b4a392817", pathToken: "c6-path-token-4a39281706", signs: true, timed: true, prove: plain},
		{name: "gitlab", provider: "gitlab", secret: "c7-gitlab-token-39281706f5", prove: token("X-Gitlab-Token")},
		{name: "shared", provider: "shared-secret", secret: "c8-shared-secret-281706f5e4", pathToken: "c8-path-token-1706f5e4d3", prove: token("X-Hook-Secret")},
	}
}

// config returns the lines of the configuration.
func (e *endpoint) config(forwardTo string) string {
	lines := fmt.Sprintf("  - name: %s\n    provider: %s\n    path: /hooks/%s\n    deliver: {to: %q, attempts: 2, backoff: [10ms]}\n", e.name, e.provider, e.name, forwardTo)
	if e.pathToken != "" {
		lines += fmt.Sprintf("    path_token: %q\n", e.pathToken)
	}
	if e.provider == "shared-secret" {
		return lines + fmt.Sprintf("    shared_secret: {value: %q}\n", e.secret)
	}
	return lines + fmt.Sprintf("    secrets: [%q]\n", e.secret)
}

func (e *endpoint) path() string {
	if e.pathToken != "" {
		return "/hooks/" + e.name + "/" + e.pathToken
	}
	return "/hooks/" + e.name
}

func macOf(secret string, parts ...string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, p := range parts {
		mac.Write([]byte(p))
	}
	return mac.Sum(nil)
}

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

func github(h http.Header, secret, _ string, body []byte, _ time.Time) []byte {
	mac := macOf(secret, string(body))
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac))
	h.Set("X-Github-Event", "secrecy")
	return mac
}

func stripe(h http.Header, secret, _ string, body []byte, at time.Time) []byte {
	mac := macOf(secret, unix(at), ".", string(body))
	h.Set("Stripe-Signature", "t="+unix(at)+",v1="+hex.EncodeToString(mac))
	return mac
}

func standard(h http.Header, secret, id string, body []byte, at time.Time) []byte {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := macOf(string(key), id, ".", unix(at), ".", string(body))
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", unix(at))
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac))
	return mac
}

func slack(h http.Header, secret, _ string, body []byte, at time.Time) []byte {
	mac := macOf(secret, "v0:", unix(at), ":", string(body))
	h.Set("X-Slack-Request-Timestamp", unix(at))
	h.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac))
	return mac
}

func shopify(h http.Header, secret, _ string, body []byte, _ time.Time) []byte {
	mac := macOf(secret, string(body))
	h.Set("X-Shopify-Topic", "orders/create")
	h.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac))
	return mac
}

func plain(h http.Header, secret, _ string, body []byte, at time.Time) []byte {
	mac := macOf(secret, unix(at), ".", string(body))
	h.Set("X-Timestamp", unix(at))
	h.Set("X-Signature", hex.EncodeToString(mac))
	return mac
}

// token sends the secret itself.
func token(header string) func(http.Header, string, string, []byte, time.Time) []byte {
	return func(h http.Header, secret, _ string, _ []byte, _ time.Time) []byte {
		h.Set(header, secret)
		return nil
	}
}
