// Package outbound sends requests to other systems: it has the HTTP client
// that cannot be talked into reaching a private address, the Standard Webhooks
// signer, and the delivery of one event to one destination.
//
// It follows no redirect, reads a bounded part of every answer, ignores the
// proxy variables of the environment, and keeps paths, queries, credentials,
// header values and whatever the other side wrote out of its errors.
//
// It does not decide when to try again: it returns errors that the worker
// understands ([ichido.dev/ichido.RetryAfter], [ichido.dev/ichido.Permanent]).
// It does not limit the rate of requests, and it keeps no state but its
// connections.
package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Options sets up a client. The zero value reaches public addresses only.
type Options struct {
	// Allow names what may be reached although it is not public: CIDR
	// prefixes and addresses ("10.1.0.0/16", "127.0.0.1", "::1"), and host
	// names ("localhost", "app.internal"). A named host may resolve to a
	// loopback or private address, not to a link-local one. An address of a
	// cloud's metadata service has to be listed by itself.
	Allow []string

	// Proxy, when set, is the proxy for all requests ("http://proxy:3128").
	// The addresses of destinations are then looked up and guarded by the
	// proxy, not here. The proxy variables of the environment are ignored.
	Proxy string

	DialTimeout   time.Duration // look-up and connection: 5 s by default
	TLSTimeout    time.Duration // TLS handshake: 5 s by default
	HeaderTimeout time.Duration // from the request's end to the answer's header: 15 s by default
	Timeout       time.Duration // the whole exchange with the answer's body: 30 s by default

	MaxConns int // connections to one host at a time: 256 by default

	// Resolver looks up host names: Go's default one when nil.
	Resolver *net.Resolver

	// connect, in tests, is asked before each connection that the guard
	// allows; an error keeps the connection from being made.
	connect func(address string) error
}

// NewClient returns an HTTP client that guards every connection it makes, at
// the moment it is made and by the address that is really dialled, so that a
// name that changes its address between a check and the connection gains
// nothing. It does not follow redirects: the 3xx is the answer. It does not
// decompress. Use [Exchange] to send requests with it: http.Client puts whole
// URLs into its errors.
func NewClient(o Options) (*http.Client, error) {
	if o.DialTimeout < 0 || o.TLSTimeout < 0 || o.HeaderTimeout < 0 || o.Timeout < 0 || o.MaxConns < 0 {
		return nil, errors.New("outbound client: times and limits must not be negative")
	}
	allow := o.Allow
	proxy, err := parseProxy(o.Proxy)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
		allow = append(allow[:len(allow):len(allow)], proxy.Hostname())
	}
	g, err := newGuard(allow)
	if err != nil {
		return nil, fmt.Errorf("outbound client: %w", err)
	}
	g.dialer = net.Dialer{Timeout: orDefault(o.DialTimeout, 5*time.Second), Resolver: o.Resolver}
	g.connect = o.connect

	transport.DialContext = g.dial
	transport.TLSHandshakeTimeout = orDefault(o.TLSTimeout, 5*time.Second)
	transport.ResponseHeaderTimeout = orDefault(o.HeaderTimeout, 15*time.Second)
	transport.MaxResponseHeaderBytes = 64 << 10
	transport.MaxConnsPerHost = orDefault(o.MaxConns, 256)
	transport.MaxIdleConns = 256
	transport.MaxIdleConnsPerHost = 32
	transport.IdleConnTimeout = 90 * time.Second
	transport.DisableCompression = true
	transport.ForceAttemptHTTP2 = true
	return &http.Client{
		Transport:     transport,
		CheckRedirect: refuseRedirect,
		Timeout:       orDefault(o.Timeout, 30*time.Second),
	}, nil
}

// refuseRedirect makes the 3xx itself the answer.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func parseProxy(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return nil, errors.New(`outbound client: the proxy must be a URL such as "http://proxy:3128" (http, https or socks5)`)
	}
	return u, nil
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}
