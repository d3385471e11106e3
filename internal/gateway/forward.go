package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
)

// forward returns the handler that posts a source's events to its
// destination.
func forward(d *config.Deliver, headers []string, signer *outbound.Signer) (ichido.Handler, error) {
	client, err := outbound.NewClient(outbound.Options{
		Allow:   slices.Concat(d.Allow, literalHosts(d.To)),
		Timeout: time.Duration(d.Timeout),
	})
	if err != nil {
		return nil, err
	}
	destination, err := outbound.NewDestination(outbound.DestinationOptions{
		URL: d.To, Headers: slices.Concat(headers, d.Headers), Signer: signer, Client: client,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, e *ichido.Event) error {
		_, err := destination.Deliver(ctx, outbound.NewMessage(e))
		return err
	}, nil
}

// literalHosts returns what the operator allows by writing it: a loopback or
// private destination named by its address, or localhost.
func literalHosts(to string) []string {
	u, err := url.Parse(to)
	if err != nil {
		return nil
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		return []string{"localhost"}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return []string{addr.String()}
	}
	return nil
}

// signerOf returns the signer of forwards, nil when no key is configured.
func signerOf(f *config.File, getenv func(string) (string, bool)) *outbound.Signer {
	var keys []string
	for i, s := range f.Signing {
		value, err := s.Ref.Resolve(getenv)
		if err != nil {
			f.Add(fmt.Sprintf("signing[%d]", i), err.Error(), "")
			continue
		}
		keys = append(keys, value)
	}
	if len(keys) == 0 {
		return nil
	}
	signer, err := outbound.NewSigner(keys...)
	if err != nil {
		f.Add("signing", err.Error(), "")
		return nil
	}
	return signer
}
