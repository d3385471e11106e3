package ichido

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Event is a verified webhook, stored once. Its fields are unexported: only
// an [Inbox] or a [Worker] makes one, from the proof that the source's
// [Provider] returned or from a record that was stored because of one. So a
// handler can only ever get an event that a provider verified.
//
// Verified does not mean harmless: every string in the payload was chosen by
// somebody. Treat it as untrusted input in SQL, shells, HTML and requests.
type Event struct {
	rec       Record
	payload   []byte
	confirmed []byte
}

// ID returns the event's id: "ev_" and 26 letters and digits, derived from
// source and key. The same webhook has the same id for ever, so it may serve
// as the idempotency key of calls to other systems.
func (e *Event) ID() string { return e.rec.ID() }

// Source returns the name of the source that received the event.
func (e *Event) Source() string { return e.rec.Source }

// Key returns the identity of the event inside its source.
func (e *Event) Key() string { return e.rec.Key }

// Type returns the event type, "" when there is none. It selects what to do
// only as far as [Event.TypeSigned] allows.
func (e *Event) Type() string { return e.rec.Type }

// TypeSigned reports whether the signature covers the type. Where it does not
// (GitHub, Shopify), a captured body may come back under another type of the
// same shape: separate such types by endpoint and secret, or confirm them.
func (e *Event) TypeSigned() bool { return e.rec.TypeSigned }

// Strength returns what the scheme proved: [Verified], [Authenticated] or [Weak].
func (e *Event) Strength() string { return e.rec.Strength }

// Time returns the signed time, or zero when the scheme has none.
func (e *Event) Time() time.Time { return e.rec.Time }

// ReceivedAt returns when the request arrived, by the receiver's clock.
func (e *Event) ReceivedAt() time.Time { return e.rec.ReceivedAt }

// Body returns the bytes that the signature covers, as received. It is valid,
// and must not be changed, until the handler returns.
func (e *Event) Body() []byte { return e.rec.Body }

// Payload returns the JSON view of the body: the body itself, or the JSON
// that it wraps (a form's "payload" field). It is nil when the body is not
// JSON. Valid until the handler returns.
func (e *Event) Payload() []byte { return e.payload }

// Confirmed returns the authoritative state that the provider's API gave,
// nil when the source does not confirm. Act on this, not on the payload.
func (e *Event) Confirmed() []byte { return e.confirmed }

// Attempt returns the number of this attempt, from 1.
func (e *Event) Attempt() int { return max(e.rec.Attempts, 1) }

// Header returns the first value of a stored header, "" when it was not
// stored. Headers are outside most signatures: read them as hints.
func (e *Event) Header(name string) string {
	return e.rec.Headers().Get(name)
}

// Headers returns the stored headers.
func (e *Event) Headers() http.Header { return e.rec.Headers() }

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ID returns the id of the event: "ev_" and its Hash.
func (r *Record) ID() string {
	var buf [29]byte
	copy(buf[:], "ev_")
	idEncoding.Encode(buf[3:], r.Hash[:])
	return string(buf[:])
}

// ParseID returns the Hash of an event id, and whether id is one.
func ParseID(id string) (hash [16]byte, ok bool) {
	text, found := strings.CutPrefix(id, "ev_")
	if !found || len(text) != 26 {
		return hash, false
	}
	n, err := idEncoding.Decode(hash[:], []byte(text))
	r := Record{Hash: hash}
	return hash, err == nil && n == len(hash) && r.ID() == id
}

// identify sets the record's Hash from a source and a key. kind keeps apart
// what is not an event: quarantined bytes never share a hash with one.
func (r *Record) identify(kind byte, key string) {
	h := sha256.New()
	var buf [256]byte
	b := append(buf[:0], r.Source...)
	b = append(b, kind)
	b = append(b, key...)
	h.Write(b)
	sum := h.Sum(buf[:0])
	copy(r.Hash[:], sum)
}

// Headers decodes the kept headers.
func (r *Record) Headers() http.Header {
	if len(r.Header) == 0 {
		return http.Header{}
	}
	block := make([]byte, 0, len(r.Header)+2)
	block = append(append(block, r.Header...), "\r\n"...)
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(block))).ReadMIMEHeader()
	if err != nil {
		return http.Header{}
	}
	return http.Header(h)
}
