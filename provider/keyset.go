package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/loopback"
)

// Bounds on published key sets.
const (
	maxKeySetBytes = 256 << 10
	maxKeySetKeys  = 20
	keySetTimeout  = 5 * time.Second
	keySetRefresh  = 5 * time.Minute  // at most one refresh in this time
	keySetRetry    = 10 * time.Second // while there is no set at all
	keySetMaxAge   = time.Hour        // then a set is refreshed before it is used
)

// keyCache holds the public keys of a sender. A fetched set is kept for as
// long as no better one was fetched: an error is never an empty set.
type keyCache struct {
	url    string // "" for a fixed set
	client *http.Client
	latest atomic.Pointer[keySnapshot] // nil until a first set is there

	mu        sync.Mutex // held while fetching, so that one fetch runs at a time
	attempted time.Time  // when a fetch was last tried; guarded by mu
}

// keySnapshot is a set as it was fetched, never changed.
type keySnapshot struct {
	keys    []publicKey
	fetched time.Time
}

// newKeyCache makes the keys of a variant from a configuration.
func newKeyCache(c *Config, pinned string) (*keyCache, error) {
	if len(c.KeySet.JSON) > 0 {
		keys, err := parseKeySet(c.KeySet.JSON)
		fixed := new(keyCache)
		fixed.latest.Store(&keySnapshot{keys: keys})
		return fixed, err
	}
	address := pinned
	if c.KeySet.URL != "" {
		if err := checkKeySetURL(c.KeySet.URL); err != nil {
			return nil, err
		}
		address = c.KeySet.URL
	}
	client := &http.Client{Timeout: keySetTimeout}
	if c.HTTPClient != nil {
		own := *c.HTTPClient
		client = &own
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Jar = nil
	return &keyCache{url: address, client: client}, nil
}

// checkKeySetURL refuses what could be read or changed on its way.
func checkKeySetURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("url is not a plain https URL")
	}
	if u.Scheme == "https" {
		return nil
	}
	if u.Scheme == "http" && loopback.Is(u.Hostname()) {
		return nil
	}
	return errors.New("url must be https (http only on a loopback address or localhost)")
}

// use calls try with the keys, and once more after a refresh when no key
// fitted and a refresh is due. It is the receipt of the delivery that tells
// the time.
func (c *keyCache) use(now time.Time, try func([]publicKey) (int, error)) (int, error) {
	set := c.current(now)
	if set == nil {
		return 0, errNoKeySet
	}
	index, err := try(set.keys)
	if err == nil || c.url == "" {
		return index, err
	}
	if newer := c.refresh(now, set); newer != set {
		return try(newer.keys)
	}
	return 0, err
}

var errNoKeySet = &ichido.Error{
	Code: ichido.CodeUnavailable, Op: "verify", Cause: "key_set_unavailable",
	Hint: "the sender's key set was never fetched: let the receiver reach it, or give the set in the configuration",
}

// current returns the newest set. It waits for a first one; an old set is
// refreshed by one request while the others use it.
func (c *keyCache) current(now time.Time) *keySnapshot {
	set := c.latest.Load()
	switch {
	case c.url == "" || set != nil && now.Sub(set.fetched) < keySetMaxAge:
		return set
	case set == nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.latest.Load() == nil && (c.attempted.IsZero() || now.Sub(c.attempted) >= keySetRetry) {
			c.fetch(now)
		}
	case c.mu.TryLock():
		defer c.mu.Unlock()
		if now.Sub(c.attempted) >= keySetRefresh {
			c.fetch(now)
		}
	}
	return c.latest.Load()
}

// refresh returns a newer set than known, or known when there is none and
// none was to be had. At most one fetch is made in keySetRefresh.
func (c *keyCache) refresh(now time.Time, known *keySnapshot) *keySnapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest.Load() == known && now.Sub(c.attempted) >= keySetRefresh {
		c.fetch(now)
	}
	return c.latest.Load()
}

// fetch replaces the set, or leaves it as it is. The lock is held.
func (c *keyCache) fetch(now time.Time) {
	c.attempted = now
	ctx, cancel := context.WithTimeout(context.Background(), keySetTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxKeySetBytes+1))
	if err != nil || response.StatusCode != http.StatusOK {
		return
	}
	if keys, err := parseKeySet(data); err == nil {
		c.latest.Store(&keySnapshot{keys, now})
	}
}

// parseKeySet reads a JWKS. Keys for other uses and of other kinds are left
// out; a set without a usable key is an error.
func parseKeySet(data []byte) ([]publicKey, error) {
	if len(data) > maxKeySetBytes {
		return nil, fmt.Errorf("key set is larger than %d bytes", maxKeySetBytes)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("key set is not a JSON object with keys")
	}
	if len(set.Keys) > maxKeySetKeys {
		return nil, fmt.Errorf("key set has %d keys, at most %d are read", len(set.Keys), maxKeySetKeys)
	}
	var keys []publicKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if err := k.UnmarshalJSON(raw); err != nil || k.Use != "" && k.Use != "sig" {
			continue
		}
		if public, ok := usableKey(k.Key); ok {
			keys = append(keys, publicKey{id: k.KeyID, alg: k.Algorithm, key: public})
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("key set has no usable public key")
	}
	return keys, nil
}

// usableKey reports whether a key is public, of a kind that is used, and not
// weak.
func usableKey(key any) (any, bool) {
	switch key := key.(type) {
	case ed25519.PublicKey:
		public, err := checkEd25519(key)
		return public, err == nil
	case *rsa.PublicKey:
		return key, checkRSA(key) == nil
	case *ecdsa.PublicKey:
		return key, true
	}
	return nil, false
}
