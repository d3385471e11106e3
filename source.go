package ichido

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"ichido.dev/ichido/internal/placeholder"
)

// Handler applies one event. What it returns is the whole protocol: nil
// completes the event; an error has it tried again by the source's backoff
// table until its attempts are used up; [Permanent] makes it a dead letter at
// once; [RetryAfter] asks for a time. A panic is an error.
//
// A handler may run again for the same event: after an error, and after a
// crash or a lost lease. It never runs twice at the same time under a live
// lease. Its context ends with the attempt's deadline, with the lease, or
// with the worker.
type Handler func(ctx context.Context, e *Event) error

// Source is one inbound endpoint: a provider with its secrets, and what is
// done with its events. Package provider makes one with the provider's
// settings filled in; [NewInbox] checks it.
//
// Events are processed in one of three ways:
//
//   - inbox (Handler, or Apply): stored, acknowledged, worked later by a
//     [Worker];
//   - inline (Inline with Claims): claimed, handled during the request, and
//     the handler's own response goes back;
//   - in transaction (Apply): row, effect and completion in one database
//     transaction, in the worker, or during the request with InRequest.
type Source struct {
	Name     string // letters, digits, '-', '_' and '.', at most 64; part of every identity: do not rename
	Provider Provider

	Handler   Handler
	Inline    func(ctx context.Context, w http.ResponseWriter, e *Event) error
	Claims    Claims  // of the inline mode; they know keys only: a queue is what tells a conflict from a duplicate
	Apply     Applier // of the transaction mode
	InRequest bool    // apply during the request instead of in the worker

	// Handles reports whether events of a type are handled at all; the others
	// are acknowledged as ignored and not stored. Nil means all.
	Handles func(eventType string) bool

	// Keep stores events although nothing in this process handles them, and
	// keeps the bodies of inline events, so that they can be replayed.
	Keep bool

	// Outcome of an event whose Handler returned nil: Applied by default.
	Outcome string

	// Confirm asks the provider's API whether the event is true, before the
	// handler; the state it returns is [Event.Confirmed]. [ErrNotYet] has it
	// asked again without spending an attempt, for at most ConfirmFor (72 h
	// by default) since the event was received; [ErrRefuted] ends the event;
	// any other error is a failed attempt.
	Confirm    func(ctx context.Context, e *Event) (state []byte, err error)
	ConfirmFor time.Duration

	// PathTokens, when set, are accepted as the last segment of the path
	// (secrets of at least 16 characters; several while one is replaced).
	// Without one of them the answer is 404.
	PathTokens []string

	BodyLimit int64  // bytes; 1 MiB by default
	Encoding  string // which Content-Encoding is accepted: "" none, "wire" gzip with the signature over the encoded bytes, "decoded" gzip with it over the plain ones

	AcceptConflict   bool // acknowledge a conflict instead of answering 409; quarantined either way
	AcceptUnreadable bool // acknowledge a verified body that is unreadable instead of answering 400; quarantined either way

	HandlerTimeout time.Duration   // of one attempt: 60 s by default; 2 s with Inline, and with Apply, which holds the store's writer meanwhile
	StoreTimeout   time.Duration   // how long a request waits for its commit: 5 s by default
	Attempts       int             // 12 by default, then a dead letter
	Backoff        []time.Duration // upper bounds of the waits between attempts: DefaultBackoff by default
	Concurrency    int             // attempts at the same time in one worker: 256 by default, 8 with Apply

	Admission *Admission  // shared between sources; one of its own by default
	Allow     func() bool // rate limit after the signature: false is answered 429

	// Observe, when set, is called for each thing that happens to a delivery
	// or an event: what is the name of a verdict, outcome or state, or a
	// Code constant; cause is an enumerated word. Both are fit for metrics.
	Observe func(what, cause string)
	Log     *slog.Logger // slog's default logger by default
}

const (
	defaultBodyLimit = 1 << 20
	minPathToken     = 16
)

// check reports every problem of a source together.
func (s *Source) check(q Queue) error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("source %q: "+format, append([]any{s.Name}, args...)...))
	}
	if !validName(s.Name) {
		add("name must be 1 to 64 letters, digits, '-', '_' or '.'")
	}
	if s.Provider == nil {
		add("provider is missing: make the source with provider.New")
	}
	modes := 0
	for _, set := range []bool{s.Handler != nil, s.Inline != nil, s.Apply != nil} {
		if set {
			modes++
		}
	}
	switch {
	case modes > 1:
		add("set only one of Handler, Inline and Apply")
	case modes == 0 && !s.Keep:
		add("nothing is done with its events: set Handler, Inline or Apply, or Keep to only store them")
	}
	if s.Inline != nil && s.Claims == nil {
		add("inline mode needs Claims, for example store.Claims()")
	}
	if s.InRequest && s.Apply == nil {
		add("InRequest needs Apply")
	}
	if _, splits := s.Provider.(Splitter); splits && (s.Inline != nil || s.InRequest) {
		add("its deliveries hold several events: they cannot be handled in the request")
	}
	if s.Confirm != nil && (s.Inline != nil || s.InRequest) {
		add("confirm runs in the worker: it cannot be combined with a handler that runs in the request")
	}
	if q == nil && s.Inline == nil {
		add("a queue is missing")
	}
	for i, token := range s.PathTokens {
		switch {
		case len(token) < minPathToken || strings.ContainsFunc(token, needsEscape):
			add("path token %d must be at least %d letters, digits, '-', '.', '_' and '~'", i+1, minPathToken)
		case placeholder.Is(token):
			add("path token %d is a placeholder: make one with `openssl rand -hex 24`", i+1)
		}
	}
	if s.BodyLimit < 0 || s.HandlerTimeout < 0 || s.StoreTimeout < 0 || s.ConfirmFor < 0 || s.Attempts < 0 || s.Concurrency < 0 {
		add("limits and times must not be negative")
	}
	if s.Encoding != "" && s.Encoding != encodingWire && s.Encoding != encodingDecoded {
		add("encoding must be \"\", %q or %q", encodingWire, encodingDecoded)
	}
	return errors.Join(errs...)
}

// withDefaults returns the source with its zero settings filled in.
func (s Source) withDefaults() Source {
	setDefault(&s.Outcome, Applied)
	setDefault(&s.ConfirmFor, 72*time.Hour)
	setDefault(&s.BodyLimit, defaultBodyLimit)
	setDefault(&s.StoreTimeout, 5*time.Second)
	setDefault(&s.Attempts, 12)
	if s.Apply != nil {
		setDefault(&s.Concurrency, 8)
	}
	setDefault(&s.Concurrency, 256)
	if s.Apply != nil || s.Inline != nil {
		setDefault(&s.HandlerTimeout, 2*time.Second)
	}
	setDefault(&s.HandlerTimeout, time.Minute)
	if len(s.Backoff) == 0 {
		s.Backoff = DefaultBackoff()
	}
	if s.Admission == nil {
		s.Admission = &Admission{}
	}
	if s.Observe == nil {
		s.Observe = func(string, string) {}
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	return s
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// needsEscape reports whether a character can be in a path in more than one
// spelling.
func needsEscape(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~", c)
}

func validName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return name != "." && name != ".."
}
