package ichido

import (
	"net/http"
	"time"
)

// Delivery is one HTTP request by a sender. Nothing in it is trusted: only
// a [Provider] can turn it into a [Proof], and only an [Inbox] can turn that
// proof into an [Event].
type Delivery struct {
	Method   string
	Path     string      // escaped path, as received
	RawQuery string      // raw query, byte for byte
	Header   http.Header // as received; a name may occur several times

	// Body is what the sender's signature covers: the bytes of the request as
	// read, or, where the source is set to it, the same after one
	// Content-Encoding was undone. A Provider MUST NOT keep or change it.
	Body []byte

	// Content is Body with its Content-Encoding undone, where the signature
	// covers the encoded bytes; nil where Body itself is to be read.
	Content []byte

	// ReceivedAt is when the request's header arrived, by the receiver's
	// clock. Freshness is judged by it, so that verifying is a pure function.
	ReceivedAt time.Time
}

// Readable returns the bytes to parse: Content where there is one, else Body.
func (d *Delivery) Readable() []byte {
	if d.Content != nil {
		return d.Content
	}
	return d.Body
}

// What a scheme proves, strongest first. Never merge them into one boolean:
// a consumer that needs integrity must be able to tell.
const (
	// Verified: the signature covers the whole body.
	Verified = "verified"
	// Authenticated: the sender knew a secret, the body is not bound to it
	// (shared tokens, HTTP Basic, a JWT that does not name the body).
	Authenticated = "authenticated"
	// Weak: the body is bound by something that can be forged or extended
	// (a checksum, a bare hash of secret and body).
	Weak = "weak"
)

// Proof is what a [Provider] established about a [Delivery]. Every field that
// decides something (ID, Key, Fingerprint, Time) comes from facts that the
// signature covers, or, for schemes without a signature, from facts that the
// holder of the secret vouched for.
type Proof struct {
	Scheme   string // variant of the provider's scheme that verified, for example "default" or "dynamic"
	Strength string // Verified, Authenticated or Weak
	Secret   int    // index of the configured secret or key that verified

	ID         string    // signed id of the event; "" when the scheme has none
	Type       string    // event type; "" when there is none
	TypeSigned bool      // whether Type is covered by the signature
	Time       time.Time // signed time; zero when the scheme has none

	// Key identifies the event inside its source. Two deliveries with the
	// same Key are the same event (a duplicate) or a conflict; which one is
	// decided by Fingerprint.
	Key         string
	Fingerprint [32]byte

	// Keep names the headers stored with the event besides Content-Type,
	// Content-Encoding and User-Agent; Redact names those of them whose value
	// is a secret and is replaced before it is stored. Canonical names; the
	// slices may be shared between proofs.
	Keep   []string
	Redact []string

	// Stored, when not nil, is stored instead of the delivery's body: the
	// same bytes with a secret member replaced.
	Stored []byte

	// At most one of these three is set; each says why, in words that hold
	// nothing of the request's values.
	Ignored    string // verified, and there is nothing to act on: acknowledged, not stored
	Denied     string // verified, and refused by the source's policy
	Unreadable string // verified, and cannot become an event: quarantined

	// Invalid says of an Unreadable proof that the body can be read, but lacks
	// what would make it an event (an id): answered 409 instead of 400.
	Invalid bool
}

// Provider knows one kind of sender: how it signs and what its signature
// covers.
//
// Verify MUST return a nil error only when the scheme verified over exactly
// d.Body, inside the time window judged by d.ReceivedAt. It MUST be safe for
// concurrent use, and pure: no network, except for a pinned and cached key
// set. It returns an [*Error] with code [CodeSignature] for anything that is
// not genuine (missing, malformed, wrong or stale: the sender is told the
// same for all of them) and with code [CodeUnavailable] when it cannot tell,
// for example because a key server is down. Its errors MUST NOT hold a
// secret, an expected MAC or a path token.
//
// What else a sender needs is found by the interfaces below. A Provider that
// wraps another one must pass on those that the inner one has: embedding a
// Provider value in a struct passes on Verify alone.
type Provider interface {
	Verify(d *Delivery) (Proof, error)
}

// Challenger is implemented by a [Provider] whose sender performs handshakes.
//
// Challenge reports whether d is a handshake, and if so writes the answer to
// w. It is called without a body for methods other than POST, with
// verified=false before the signature is checked, and once more with
// verified=true after it held. It MUST answer a handshake that the sender
// signs only when verified. A handshake never becomes an event and never
// needs the store.
type Challenger interface {
	Challenge(w http.ResponseWriter, d *Delivery, verified bool) bool
}

// Acknowledger is implemented by a [Provider] whose sender expects an exact
// answer.
//
// Acknowledge writes the answer for a verdict and reports true, or reports
// false to have the standard answer written. The verdict is the name of a
// [Verdict] ("accepted", "duplicate"), "ignored", "quarantined", or one of
// the Code constants. id is the event's id, "" where there is none.
type Acknowledger interface {
	Acknowledge(w http.ResponseWriter, verdict, id string) bool
}

// Splitter is implemented by a [Provider] whose sender puts several events
// into one request.
//
// Split returns one Proof per event, with its own Key, Fingerprint and, in
// Stored, its own bytes. The delivery is stored once, the events beside it,
// all in one commit; it is acknowledged only when all of them are committed.
// A nil slice means that this delivery is a single event.
type Splitter interface {
	Split(d *Delivery, p Proof) ([]Proof, error)
}

// Inspector is implemented by a [Provider] that must look into a verified
// body before a handler may have it.
//
// Inspect returns the JSON view of the body (for example the unwrapped
// "payload" field of a form), or nil when there is none. It returns an
// [*Error] with code [CodeUnreadable] when the body is not what the sender
// sends (not JSON, a member twice), and with code [CodeNotAllowed] when the
// body lacks what an event of this type must have. It is called in the
// request where the source answers such bodies with an error or applies
// events in the request, else by the worker, before the handler.
type Inspector interface {
	Inspect(eventType string, body []byte) (payload []byte, err error)
}
