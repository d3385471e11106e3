package gateway

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
)

// forward returns the handler that posts a source's events to its
// destination.
func forward(d *config.Deliver, headers []string, signer *outbound.Signer) (ichido.Handler, error) {
	client, err := outbound.NewClient(clientOptions(d))
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

// clientOptions returns what the client of a destination may reach, and how
// long it waits: the destination's time is all the time it has, and a slow one
// may need it before it sends the first byte of its answer.
func clientOptions(d *config.Deliver) outbound.Options {
	timeout := time.Duration(d.Timeout)
	return outbound.Options{Allow: slices.Concat(d.Allow, literalHost(d.To)), Timeout: timeout, HeaderTimeout: timeout}
}

// literalHost returns what the operator allows by writing it: the host of a
// URL where that is an address or localhost.
func literalHost(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	return outbound.Literal(u.Hostname())
}

// signerOf returns the signer of forwards, nil when no key is configured.
func signerOf(f *config.File, getenv func(string) (string, bool), here Secrets) *outbound.Signer {
	var keys []string
	for i, s := range f.Signing {
		value, err := s.Ref.Resolve(getenv)
		if err != nil {
			if here == SecretsHere {
				f.Add(fmt.Sprintf("signing[%d]", i), err.Error(), "")
			}
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
