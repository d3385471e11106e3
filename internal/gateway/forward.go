package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
)

// forward returns the handler that posts a source's events to its
// destination. The worker logs the attempts that fail; here it is logged when
// they no longer do.
func forward(source string, d *config.Deliver, headers []string, signer *outbound.Signer, log *slog.Logger) (ichido.Handler, error) {
	client, err := outbound.NewClient(clientOptions(d))
	if err != nil {
		return nil, err
	}
	destination, err := outbound.NewDestination(outbound.DestinationOptions{
		URL: d.To, Headers: slices.Concat(headers, d.Headers), Signer: signer, Client: client, Backoff: waits(d.Backoff),
	})
	if err != nil {
		return nil, err
	}
	var fails recovery
	return func(ctx context.Context, e *ichido.Event) error {
		_, err := destination.Deliver(ctx, outbound.NewMessage(e))
		if fails.note(err, time.Now()) {
			log.Info("the destination takes events again", "source", source, "event", e.ID(), "attempt", e.Attempt())
		}
		return err
	}, nil
}

// waits returns a table of waits as the worker takes it.
func waits(table []config.Duration) []time.Duration {
	list := make([]time.Duration, len(table))
	for i, wait := range table {
		list[i] = time.Duration(wait)
	}
	return list
}

// recovery notices that a destination works again after it failed.
type recovery struct {
	mu     sync.Mutex
	failed bool
	told   time.Time
}

// recoveryEvery bounds how often a destination that comes and goes is said to
// work again.
const recoveryEvery = 10 * time.Second

// note takes the result of a forward, and reports whether it is to be told
// that forwards succeed again. The end of this process is not the fault of a
// destination.
func (r *recovery) note(err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = r.failed || !errors.Is(err, context.Canceled)
		return false
	}
	if !r.failed || now.Sub(r.told) < recoveryEvery {
		return false
	}
	r.failed, r.told = false, now
	return true
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
		at := fmt.Sprintf("signing[%d]", i)
		value, err := s.Ref.Resolve(getenv)
		if err != nil {
			if here == SecretsHere {
				message, cure, _ := strings.Cut(err.Error(), "; ")
				f.Add(at, message, cure)
			}
			continue
		}
		if _, err := outbound.NewSigner(value); err != nil {
			f.Add(at, strings.TrimPrefix(err.Error(), "signing secret 1: "),
				`write env:NAME or file:PATH of a key: "whsec_" and the base64 of 24 to 64 random bytes`)
			continue
		}
		keys = append(keys, value)
	}
	if len(keys) == 0 {
		return nil
	}
	signer, err := outbound.NewSigner(keys...)
	if err != nil {
		f.Add("signing", err.Error(), "correct its keys")
		return nil
	}
	return signer
}
