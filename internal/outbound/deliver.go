package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ichido.dev/ichido"
)

const (
	answerLimit  = 64 << 10 // bytes of an answer that are read
	excerptLimit = 2 << 10  // bytes of an answer that are kept
)

// DestinationOptions describes a destination.
type DestinationOptions struct {
	// URL is where events are posted: http or https. Its path and query may
	// hold a secret; they are in no error.
	URL string

	// Headers names headers of the sender that are passed on besides
	// Content-Type and Content-Encoding, for example "X-Github-Event". They
	// are outside most signatures: hints, not facts.
	Headers []string

	// Signer signs each request. Nil means that requests are not signed.
	Signer *Signer

	// Client sends the requests; see [NewClient].
	Client *http.Client

	// Backoff is the table of waits between attempts of the source: the
	// default one when it is empty. A Retry-After makes them no shorter.
	Backoff []time.Duration

	// UserAgent is "ichido" by default.
	UserAgent string
}

// Destination is where events are forwarded to. It is immutable and safe for
// concurrent use.
type Destination struct {
	url       *url.URL
	headers   []string
	signer    *Signer
	client    *http.Client
	backoff   []time.Duration
	userAgent string
}

// NewDestination checks the options, and reports every problem together.
func NewDestination(o DestinationOptions) (*Destination, error) {
	var errs []error
	d := &Destination{
		headers:   []string{"Content-Type", "Content-Encoding"},
		signer:    o.Signer,
		client:    o.Client,
		backoff:   o.Backoff,
		userAgent: orDefault(o.UserAgent, "ichido"),
	}
	if len(d.backoff) == 0 {
		d.backoff = ichido.DefaultBackoff()
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		// The text is not shown: it may hold a secret.
		errs = append(errs, errors.New(`URL must be of the form "https://host/path", without a fragment`))
	}
	d.url = u
	if o.Client == nil {
		errs = append(errs, errors.New("a client is missing: make one with NewClient"))
	}
	if !isPrintable(d.userAgent) {
		errs = append(errs, errors.New("user agent must be printable ASCII"))
	}
	for _, name := range o.Headers {
		canonical, err := forwardable(name)
		if err != nil {
			errs = append(errs, err)
		}
		d.headers = append(d.headers, canonical)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	return d, nil
}

// Target returns the scheme, host and port of the destination.
func (d *Destination) Target() string { return Target(d.url) }

// Message is what is delivered.
type Message struct {
	ID         string // stable over attempts and replays: the receiver dedupes by it
	Source     string
	Type       string
	TypeSigned bool
	Strength   string
	Attempt    int         // from 1
	Header     http.Header // as stored; only the destination's choice of it is sent
	Body       []byte      // sent byte for byte
}

// NewMessage returns the message for an event.
func NewMessage(e *ichido.Event) Message {
	return Message{
		ID:         e.ID(),
		Source:     e.Source(),
		Type:       e.Type(),
		TypeSigned: e.TypeSigned(),
		Strength:   e.Strength(),
		Attempt:    e.Attempt(),
		Header:     e.Headers(),
		Body:       e.Body(),
	}
}

// Result is what an operator may want to see of an attempt.
type Result struct {
	Status  int    // 0 when there was no answer
	Excerpt string // beginning of the answer's body, at most 2 KiB; printable text, still untrusted
	Dropped int64  // bytes of the body that were not read, -1 when unknown
}

// Deliver posts a message, once. A nil error means that the destination
// answered 2xx. The error is fit to be returned from a handler as it is:
//
//	2xx                   delivered
//	410                   dead letter at once
//	3xx, other statuses,  a failed attempt: tried again by the backoff table,
//	no answer             or later if the answer's Retry-After says so
func (d *Destination) Deliver(ctx context.Context, m Message) (Result, error) {
	req, err := d.request(ctx, m, time.Now())
	if err != nil {
		return Result{}, err
	}
	answer, err := Exchange(d.client, req, answerLimit)
	if answer == nil {
		return Result{}, fmt.Errorf("deliver to %w", err)
	}
	// The status is what counts: a body that broke off changes nothing.
	result := Result{Status: answer.Status, Excerpt: excerpt(answer.Body), Dropped: answer.Dropped}
	means, why := meaning(answer.Status)
	if means == delivered {
		return result, nil
	}
	err = fmt.Errorf("destination answered %d", answer.Status)
	if why != "" {
		err = fmt.Errorf("%w: %s", err, why)
	}
	if means == stop {
		return result, ichido.Permanent(err)
	}
	return result, After(err, RetryAfter(answer.Header, time.Now()), d.backoff, m.Attempt)
}

// request builds the POST of a message.
func (d *Destination) request(ctx context.Context, m Message, now time.Time) (*http.Request, error) {
	if m.ID == "" || !isPrintable(m.ID) || strings.ContainsAny(m.ID, ". \t") {
		return nil, ichido.Permanent(errors.New("deliver: the message's id cannot be signed"))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url.String(), bytes.NewReader(m.Body))
	if err != nil {
		return nil, fmt.Errorf("deliver to %s: the request cannot be made", d.Target())
	}
	h := req.Header
	copyHeaders(h, m.Header, d.headers)
	h.Set("User-Agent", d.userAgent)
	h.Set("Webhook-Id", m.ID)
	h.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	if d.signer != nil {
		h.Set("Webhook-Signature", d.signer.Sign(m.ID, now.Unix(), m.Body))
	}
	h.Set("Ichido-Attempt", strconv.Itoa(m.Attempt))
	h.Set("Ichido-Source", headerText(m.Source))
	h.Set("Ichido-Strength", headerText(m.Strength))
	if m.Type != "" {
		h.Set("Ichido-Type", headerText(m.Type))
		h.Set("Ichido-Type-Signed", strconv.FormatBool(m.TypeSigned))
	}
	return req, nil
}

// excerpt returns the beginning of an answer as text that cannot move a
// cursor, forge a line or turn the reading direction around.
func excerpt(body []byte) string {
	if len(body) > excerptLimit {
		body = body[:excerptLimit]
	}
	clean := func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}
	return string(bytes.Map(clean, body))
}
