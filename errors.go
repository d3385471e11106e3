package ichido

import (
	"errors"
	"time"
)

// Codes of answers and errors. They are stable: match on them, not on text.
const (
	CodeSignature   = "signature_invalid"
	CodeNotFound    = "not_found"
	CodeConflict    = "event_conflict"
	CodeUnreadable  = "payload_unreadable"
	CodeNotAllowed  = "event_not_allowed"
	CodeRejected    = "event_rejected"
	CodeInProgress  = "event_in_progress"
	CodeFailed      = "handler_failed"
	CodeTooLarge    = "payload_too_large"
	CodeIncomplete  = "body_incomplete"
	CodeTimeout     = "body_timeout"
	CodeEncoding    = "encoding_not_supported"
	CodeMethod      = "method_not_allowed"
	CodeRateLimited = "rate_limited"
	CodeOverloaded  = "overloaded"
	CodeUnavailable = "store_unavailable"
	CodeFull        = "inbox_full"
	CodeDraining    = "draining"
	CodeInternal    = "internal"
)

var (
	// ErrUnavailable is wrapped by a store's errors when it could not do
	// what was asked; the same call may succeed later.
	ErrUnavailable = errors.New("store unavailable")

	// ErrLeaseLost is returned when a claim is no longer held by its token.
	ErrLeaseLost = errors.New("lease lost")

	// ErrNotFound is returned when there is no such event.
	ErrNotFound = errors.New("no such event")

	// ErrBodyPurged is returned when an event cannot be replayed because its
	// body is past its retention.
	ErrBodyPurged = errors.New("body_purged: the body is past its retention")

	// ErrNotReplayable is returned when an event is not done or dead.
	ErrNotReplayable = errors.New("only done and dead events can be replayed")

	// ErrNotYet is returned by a confirmation when the provider's API says
	// that the event is not true yet: it is tried again, without spending an
	// attempt.
	ErrNotYet = errors.New("not yet")

	// ErrRefuted is returned by a confirmation when the provider's API says
	// that the event is not true: it ends as done, refuted.
	ErrRefuted = errors.New("refuted")
)

// Error is an error with a stable code. Cause says which of several reasons
// behind the same code it was: an enumerated word or a few, fit for logs and
// metrics; it never holds a secret, an expected MAC or anything that the
// sender chose.
type Error struct {
	Code  string // one of the Code constants
	Op    string // what was being done, for example "verify"
	Cause string
	Hint  string // what the operator can do about it
	Err   error
}

// Error returns "op: code (cause)", the hint, and the wrapped error's text.
func (e *Error) Error() string {
	s := e.Code
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Cause != "" {
		s += " (" + e.Cause + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// permanent marks a handler's error as final.
type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

// retryAfter asks for the time of the next attempt.
type retryAfter struct {
	err   error
	after time.Duration
}

func (r *retryAfter) Error() string { return r.err.Error() }
func (r *retryAfter) Unwrap() error { return r.err }

// Permanent wraps a handler's error to say that no further attempt can
// succeed: the event becomes a dead letter at once, or, where the handler runs
// in the request, is answered 409. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// RetryAfter wraps a handler's error to ask that the next attempt be made d
// from now instead of by the backoff table. It returns nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfter{err, max(d, 0)}
}
