// Package confirm asks a provider's own API whether an event is true, before a
// handler acts on it. A signature proves who sent the notification; the API
// says what is the case. So a forged or early "completed" does nothing.
//
// [Gemini] knows the Gemini API: operations, batches and interactions. [HTTP]
// makes a confirmation of any GET that answers with JSON, by configuration.
// Both return a function for [ichido.Source.Confirm]:
//
//   - a nil error confirms the event, and the state is the JSON that the API
//     answered; the handler finds it in [ichido.Event.Confirmed] and acts on
//     it, not on the payload;
//   - an error that wraps [ichido.ErrNotYet] has it asked again later, without
//     spending an attempt;
//   - an error that wraps [ichido.ErrRefuted] ends the event; the state, where
//     there is one, is what refuted it;
//   - [ichido.Permanent] makes a dead letter: the payload can never be
//     confirmed;
//   - any other error is a failed attempt: the API could not be reached, was
//     busy, or refused the key, which an operator will set right.
//
// What goes from a payload into a URL is checked first: whoever wrote it chose
// it. Errors hold no key, no header value and nothing of a payload or answer;
// redirects are refused, and answers are read up to a limit.
//
// The package keeps no state and does not decide when to ask again. It cannot
// confirm what an API does not tell, such as which of two notifications about
// the same batch was sent first.
package confirm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/outbound"
)

// defaultMaxBytes is how much of an answer is read.
const defaultMaxBytes = 1 << 20

// facts is what a confirmation reads of an event.
type facts struct {
	id, source, key, eventType string
	payload                    []byte
	receivedAt                 time.Time
	attempt                    int
}

func factsOf(e *ichido.Event) *facts {
	payload := e.Payload()
	if payload == nil {
		payload = e.Body()
	}
	return &facts{e.ID(), e.Source(), e.Key(), e.Type(), payload, e.ReceivedAt(), e.Attempt()}
}

// asker sends the requests of one confirmation. It is immutable.
type asker struct {
	client   *http.Client
	header   http.Header
	maxBytes int64
}

// get asks for a URL. It returns an error for an answer that says nothing
// about the event: none, a part of one, a redirect, or a server in trouble.
func (a *asker) get(ctx context.Context, url string, attempt int) (*outbound.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	req.Header = a.header.Clone()
	answer, err := outbound.Exchange(a.client, req, a.maxBytes)
	if err != nil {
		return nil, err
	}
	target := outbound.Target(req.URL)
	switch status := answer.Status; {
	case status >= 300 && status <= 399:
		return nil, fmt.Errorf("%s answered %d: redirects are not followed", target, status)
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		wait := max(outbound.RetryAfter(answer.Header, time.Now()), retryInfo(answer.Body))
		// A confirmation does not know the table of its source.
		return nil, outbound.After(fmt.Errorf("%s answered %d", target, status), wait, ichido.DefaultBackoff(), attempt)
	case answer.Dropped != 0:
		return nil, fmt.Errorf("%s answered more than %d bytes: raise the limit", target, a.maxBytes)
	}
	return answer, nil
}

// newAsker fills in what the options left out. A client of our own reaches
// public addresses, what is allowed, and the base's host where that is an
// address or localhost: whoever wrote it has said what he wants.
func newAsker(client *http.Client, allow []string, base *url.URL, header http.Header, maxBytes int64) (*asker, error) {
	if maxBytes < 0 {
		return nil, errors.New("the limit of an answer must not be negative")
	}
	if maxBytes == 0 {
		maxBytes = defaultMaxBytes
	}
	if client == nil {
		var err error
		allow = slices.Concat(allow, outbound.Literal(base.Hostname()))
		if client, err = outbound.NewClient(outbound.Options{Allow: allow}); err != nil {
			return nil, err
		}
	}
	return &asker{client: client, header: header, maxBytes: maxBytes}, nil
}

// secretText reports whether text can be a secret in a header.
func secretText(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return text != ""
}
