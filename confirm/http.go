package confirm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/outbound"
)

// HTTPOptions sets up a confirmation by a GET. For example, for a payment
// provider:
//
//	URL:     "https://api.example.com/v1/payments/{payload.data.id}"
//	Headers: {"Authorization": "Bearer " + key}
//	Done:    `body.status == "paid" && body.amount == event.payload.data.amount`
//	Refuted: `status == 404 || body.status in ["failed", "void"]`
type HTTPOptions struct {
	// URL is a template. {event.id}, {event.key}, {event.type}, {event.source}
	// and {payload.a.b} stand for facts of the event, in a segment of the path
	// or in the query; not in the scheme, the host and the port. A fact must
	// be a string of 1 to 256 characters or a whole number; one with a slash,
	// a backslash or a control character, and "." and "..", is refused.
	URL string

	// Headers are sent with each request: credentials, resolved by the caller.
	Headers map[string]string

	// Done and Refuted are expressions (expr-lang.org) over
	//
	//	status  the answer's status, an int
	//	body    the answer's JSON; nil when there is none. Whole numbers that
	//	        do not fit 64 bits are their decimal text
	//	event   {id, key, type, source, payload}: the event, payload as body
	//
	// An expression must be true or false; nil counts as false, because many
	// APIs leave out what is false. Done is required.
	Done    string
	Refuted string

	// MaxBytes is the largest answer that is accepted: 1 MiB by default.
	MaxBytes int64

	// Allow names private addresses and hosts that may be reached, as CIDR
	// prefixes, addresses or host names. A URL with an address, or localhost,
	// for its host needs no entry.
	Allow []string

	// Client, when set, sends the requests, and Allow is not used.
	Client *http.Client
}

// HTTP returns a confirmation that asks a URL for what an event is about.
//
//	the answer                        the event is
//	done is true                      confirmed; the state is the body, or
//	                                  null where there is none
//	refuted is true                   refuted
//	neither, 2xx or 404               not yet
//	neither, any other status         failed attempt
//	both, or an expression that       failed attempt: the expressions do not
//	  cannot be evaluated             fit the answer
//	2xx that is not JSON, 3xx, 408,   failed attempt, Retry-After honoured;
//	  429, 5xx, no answer             the expressions are not asked
//
// An event that lacks a fact of the URL is a dead letter.
func HTTP(o HTTPOptions) (func(context.Context, *ichido.Event) ([]byte, error), error) {
	h, err := newHTTP(o)
	if err != nil {
		return nil, fmt.Errorf("confirm by HTTP: %w", err)
	}
	return func(ctx context.Context, e *ichido.Event) ([]byte, error) {
		return h.confirm(ctx, factsOf(e))
	}, nil
}

type byHTTP struct {
	*asker
	url           *template
	done, refuted *expression // refuted may be nil
}

// newHTTP reports every problem of the options together.
func newHTTP(o HTTPOptions) (*byHTTP, error) {
	h := &byHTTP{}
	var errs []error
	var err error
	if h.url, err = parseTemplate(o.URL); err != nil {
		errs = append(errs, fmt.Errorf("URL: %w", err))
	}
	if h.done, err = compile(o.Done); err != nil {
		errs = append(errs, fmt.Errorf("done: %w", err))
	}
	if o.Refuted != "" {
		if h.refuted, err = compile(o.Refuted); err != nil {
			errs = append(errs, fmt.Errorf("refuted: %w", err))
		}
	}
	header := http.Header{"Accept": {"application/json"}, "User-Agent": {"ichido"}}
	for name, value := range o.Headers {
		if !validHeader(name, value) {
			errs = append(errs, fmt.Errorf("header %q: name and value must be printable ASCII, and the value not empty", name))
		}
		header.Set(name, value)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h.asker, err = newAsker(o.Client, o.Allow, h.url.base, header, o.MaxBytes)
	return h, err
}

func validHeader(name, value string) bool {
	return secretText(name) && !strings.ContainsAny(name, ":()<>@,;\\\"/[]?={}") && !strings.EqualFold(name, "Host") &&
		secretText(strings.ReplaceAll(value, " ", "")) && strings.TrimSpace(value) == value
}

func (h *byHTTP) confirm(ctx context.Context, f *facts) ([]byte, error) {
	state, err := h.ask(ctx, f)
	if err != nil {
		err = fmt.Errorf("confirm by HTTP: %w", err)
	}
	return state, err
}

func (h *byHTTP) ask(ctx context.Context, f *facts) ([]byte, error) {
	url, err := h.url.expand(f)
	if err != nil {
		return nil, ichido.Permanent(err)
	}
	answer, err := h.get(ctx, url, f.attempt)
	if err != nil {
		return nil, err
	}
	good := answer.Status >= 200 && answer.Status <= 299
	target := outbound.Target(h.url.base)
	body, err := decode(answer.Body)
	if err != nil && good && len(answer.Body) > 0 {
		return nil, fmt.Errorf("%s answered %d with a body that is not JSON", target, answer.Status)
	}
	state := answer.Body
	if err != nil {
		body, state = nil, []byte("null")
	}
	done, refuted, err := h.evaluate(f, answer.Status, body)
	switch {
	case err != nil:
		return nil, err
	case done && refuted:
		return nil, fmt.Errorf("%s answered %d: done and refuted are both true of it", target, answer.Status)
	case refuted:
		return state, ichido.ErrRefuted
	case done:
		return state, nil
	case good, answer.Status == http.StatusNotFound:
		return nil, ichido.ErrNotYet
	}
	return nil, fmt.Errorf("%s answered %d", target, answer.Status)
}

func (h *byHTTP) evaluate(f *facts, status int, body any) (done, refuted bool, err error) {
	env := environment{Status: status, Body: body, Event: eventFacts{ID: f.id, Key: f.key, Type: f.eventType, Source: f.source}}
	if payload, err := decode(f.payload); err == nil {
		env.Event.Payload = payload
	}
	if done, err = h.done.isTrue(env); err != nil {
		return false, false, fmt.Errorf("done: %w", err)
	}
	if h.refuted != nil {
		if refuted, err = h.refuted.isTrue(env); err != nil {
			return false, false, fmt.Errorf("refuted: %w", err)
		}
	}
	return done, refuted, nil
}
