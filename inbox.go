package ichido

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// causeConflict is why a delivery with a known key is not a duplicate.
const causeConflict = "same key, other content"

// quarantined is the verdict of a delivery that was verified and kept, but
// did not become an event.
const quarantined = "quarantined"

// Inbox is the http.Handler of one source. Mount it on any mux, under any
// path, for every method: it answers probes and wrong methods itself, and
// never redirects.
type Inbox struct {
	src Source // with defaults, never changed

	queue        Queue
	challenger   Challenger
	acknowledger Acknowledger
	splitter     Splitter
	inspector    Inspector
	tokens       [][sha256.Size]byte
	visits       sync.Pool
	lines        lines
	worker       atomic.Pointer[Worker] // that works the events of this inbox, if it is in this process
}

// NewInbox makes the handler of a source whose events are kept in q. It
// reports every problem of the source together. q may be nil only for a
// source that is handled inline; then its events are not kept.
func NewInbox(q Queue, s Source) (*Inbox, error) {
	if err := s.check(q); err != nil {
		return nil, err
	}
	in := &Inbox{src: s.withDefaults(), queue: q}
	in.challenger, _ = s.Provider.(Challenger)
	in.acknowledger, _ = s.Provider.(Acknowledger)
	in.splitter, _ = s.Provider.(Splitter)
	in.inspector, _ = s.Provider.(Inspector)
	for _, token := range s.PathTokens {
		in.tokens = append(in.tokens, sha256.Sum256([]byte(token)))
	}
	in.visits.New = func() any { return new(visit) }
	return in, nil
}

// Name returns the name of the source.
func (in *Inbox) Name() string { return in.src.Name }

// visit is one request on its way through an inbox. It is reused, except
// where something may still be reading it.
type visit struct {
	delivery Delivery
	proof    Proof
	body     intake
	content  intake // the decoded body
	header   []byte
	records  [1]Record
	busy     bool // a store, or a handler, may still be reading the records
	over     bool // it ended without a panic
}

// ServeHTTP receives one delivery. The order of work never changes: path,
// method or handshake, header shape, declared length, admission, bounded read,
// signature, time, identity, policy, claim and store in one commit, answer.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer in.recoverPanic(w)
	if !in.pathAllowed(r) {
		notFound.serve(w, r, in.src.Admission)
		return
	}
	if r.Method != http.MethodPost {
		in.probe(w, r)
		return
	}
	v := in.visits.Get().(*visit)
	defer in.leave(v)
	in.receive(w, r, v)
	v.over = true
}

// leave gives back what a visit holds. Its buffers are used again only where
// nothing can still be reading them.
func (in *Inbox) leave(v *visit) {
	if v.busy || !v.over {
		v.body.forget()
		v.content.forget()
		return
	}
	v.body.free()
	v.content.free()
	header := v.header[:0]
	*v = visit{header: header}
	in.visits.Put(v)
}

// recoverPanic turns a panic below into a 500: a request never ends the
// process.
func (in *Inbox) recoverPanic(w http.ResponseWriter) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	in.log(slog.LevelError, "panic while receiving a delivery", "panic", printable(panicText(p)))
	in.refuse(w, &Error{Code: CodeInternal, Op: "receive", Cause: "panic"})
}

// receive takes a POST from its header to its answer.
func (in *Inbox) receive(w http.ResponseWriter, r *http.Request, v *visit) {
	d := &v.delivery
	*d = Delivery{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: r.Header, ReceivedAt: time.Now()}
	if err := in.read(w, r, v); err != nil {
		in.refuse(w, err)
		return
	}
	if in.challenger != nil && in.challenger.Challenge(w, d, false) {
		in.src.Observe("challenge", "")
		return
	}
	var err error
	if v.proof, err = in.src.Provider.Verify(d); err != nil {
		in.refuse(w, asError(err, CodeSignature, "verify"))
		return
	}
	if in.challenger != nil && in.challenger.Challenge(w, d, true) {
		in.src.Observe("challenge", "")
		return
	}
	if in.src.Allow != nil && !in.src.Allow() {
		in.refuse(w, refusal(CodeRateLimited, "source rate"))
		return
	}
	in.judge(w, r, v)
}

// read performs the steps that stand before the signature.
func (in *Inbox) read(w http.ResponseWriter, r *http.Request, v *visit) *Error {
	v.body = intake{admission: in.src.Admission, limit: in.src.BodyLimit}
	v.content = v.body
	encoding, err := in.src.encoding(r.Header)
	if err != nil {
		return err
	}
	if r.ContentLength > in.src.BodyLimit {
		return refusal(CodeTooLarge, "declared length")
	}
	if err := in.src.Admission.admit(); err != nil {
		return err
	}
	if err := v.body.read(w, r); err != nil {
		return err
	}
	v.delivery.Body = v.body.buf
	if encoding == "" {
		return nil
	}
	err = v.content.decode(v.body.buf)
	if in.src.Encoding == encodingDecoded {
		v.delivery.Body = v.content.buf
		return err
	}
	v.delivery.Content = v.content.buf
	if err != nil && err.Code == CodeUnreadable {
		// The signature covers the bytes as they are: it decides first.
		v.delivery.Content, err = []byte{}, nil
	}
	return err
}

// judge decides what a verified delivery is: nothing to act on, refused by
// policy, unreadable, or one or several events.
func (in *Inbox) judge(w http.ResponseWriter, r *http.Request, v *visit) {
	p := &v.proof
	switch {
	case p.Denied != "":
		in.refuse(w, &Error{Code: CodeNotAllowed, Op: "check policy", Cause: p.Denied})
	case p.Unreadable != "":
		in.quarantine(w, r, v, unreadableCode(p), p.Unreadable)
	case p.Ignored != "" || !in.handles(p.Type):
		in.ignore(w, p)
	default:
		in.dispatch(w, r, v)
	}
}

// handles reports whether anything is done with events of a type.
func (in *Inbox) handles(eventType string) bool {
	return in.src.Handles == nil || in.src.Handles(eventType)
}

// unreadableCode returns what a verified delivery is answered that cannot
// become an event.
func unreadableCode(p *Proof) string {
	if p.Invalid {
		return CodeRejected
	}
	return CodeUnreadable
}

// ignoredCause says why a verified delivery is acknowledged and not stored.
func ignoredCause(p *Proof) string { return cmp.Or(p.Ignored, "no handler") }

func (in *Inbox) ignore(w http.ResponseWriter, p *Proof) {
	in.src.Observe(Ignored, ignoredCause(p))
	in.acknowledge(w, Ignored, "")
}

// dispatch hands a delivery that is an event to the source's way of
// processing.
func (in *Inbox) dispatch(w http.ResponseWriter, r *http.Request, v *visit) {
	inRequest := in.src.Inline != nil || in.src.InRequest
	var payload []byte
	if inRequest || !in.src.AcceptUnreadable {
		view, err := v.proof.Stored, (*Error)(nil) // without the secret that the body holds
		if view == nil {
			view = v.delivery.Readable()
		}
		if payload, err = in.inspect(v.proof.Type, view); err != nil {
			if err.Code == CodeUnreadable {
				in.quarantine(w, r, v, err.Code, err.Cause)
			} else {
				in.refuse(w, err)
			}
			return
		}
	}
	if in.splitter != nil && !inRequest {
		proofs, err := in.splitter.Split(&v.delivery, v.proof)
		if err != nil {
			in.quarantine(w, r, v, CodeUnreadable, asError(err, CodeUnreadable, "split").Cause)
			return
		}
		if proofs != nil {
			in.storeSplit(w, r, v, proofs)
			return
		}
	}
	rec := &v.records[0]
	in.record(v, &v.proof, rec)
	switch {
	case in.src.Inline != nil:
		v.busy = true // the handler may keep the event
		in.serveInline(w, r, v, &Event{rec: *rec, payload: payload})
	case in.src.InRequest:
		v.busy = true
		in.applyNow(w, r, v, &Event{rec: *rec, payload: payload})
	default:
		in.store(w, r, v)
	}
}

// inspect asks the provider whether a verified body may be handled, and
// returns the JSON view of it. Without a provider that looks into bodies it is
// the body itself where that is JSON.
func (in *Inbox) inspect(eventType string, body []byte) ([]byte, *Error) {
	if in.inspector == nil {
		if json.Valid(body) {
			return body, nil
		}
		return nil, nil
	}
	payload, err := in.inspector.Inspect(eventType, body)
	if err != nil {
		return nil, asError(err, CodeUnreadable, "inspect")
	}
	return payload, nil
}

// record fills rec with what is stored of a proof.
func (in *Inbox) record(v *visit, p *Proof, rec *Record) {
	*rec = Record{
		Source:      in.src.Name,
		Key:         p.Key,
		Type:        p.Type,
		TypeSigned:  p.TypeSigned,
		Fingerprint: p.Fingerprint,
		Strength:    p.Strength,
		Scheme:      p.Scheme,
		Secret:      p.Secret,
		Time:        p.Time,
		ReceivedAt:  v.delivery.ReceivedAt.Truncate(time.Millisecond),
		Body:        v.delivery.Body,
		State:       Pending,
	}
	if p.Stored != nil {
		rec.Body = p.Stored
	}
	v.header = appendHeaders(v.header[:0], v.delivery.Header, p, in.src.Encoding == encodingDecoded)
	rec.Header = v.header
	rec.identify(kindEvent, p.Key)
}

// store is the inbox mode: one commit, then the answer. Where a worker of
// this process has a slot for it, the event is stored as claimed by that
// worker, which starts it after the commit: that saves the claim.
func (in *Inbox) store(w http.ResponseWriter, r *http.Request, v *visit) {
	verdict, err := in.putOffered(r, v)
	if err != nil {
		in.refuse(w, err)
		return
	}
	in.answer(w, r, v, verdict)
}

// putOffered stores the visit's record, and offers it to the worker.
func (in *Inbox) putOffered(r *http.Request, v *visit) (verdict Verdict, err *Error) {
	rec := &v.records[0]
	j := in.worker.Load().offer(in, rec)
	defer func() { j.decide(verdict == Accepted, rec.Seq) }() // after a panic, too: a pledge holds up the worker's end
	verdicts, err := in.put(r, v, v.records[:])
	if err != nil {
		return 0, err
	}
	return verdicts[0], nil
}

var errVerdicts = errors.New("the queue did not return one verdict for each record")

// put stores records, whether or not the sender waits for it.
func (in *Inbox) put(r *http.Request, v *visit, records []Record) ([]Verdict, *Error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.src.StoreTimeout)
	defer cancel()
	verdicts, err := in.queue.Put(ctx, records)
	if err == nil && len(verdicts) != len(records) {
		err = errVerdicts
	}
	if err == nil {
		return verdicts, nil
	}
	v.busy = v.busy || errors.Is(err, context.DeadlineExceeded)
	in.log(slog.LevelError, "store an event", "error", err)
	return nil, asError(err, CodeUnavailable, "store")
}

// answer turns the store's verdict into the sender's answer.
func (in *Inbox) answer(w http.ResponseWriter, r *http.Request, v *visit, verdict Verdict) {
	switch verdict {
	case Accepted, Duplicate:
		in.src.Observe(verdict.String(), "")
		in.acknowledge(w, verdict.String(), v.records[0].ID())
	case Conflict:
		in.quarantine(w, r, v, CodeConflict, causeConflict)
	case Full:
		in.refuse(w, &Error{Code: CodeFull, Op: "store"})
	default:
		in.refuse(w, &Error{Code: CodeInternal, Op: "store", Cause: "verdict " + verdict.String()})
	}
}

// quarantine keeps verified bytes that cannot become an event, once per
// fingerprint, and answers with code, or 2xx where the source says so.
func (in *Inbox) quarantine(w http.ResponseWriter, r *http.Request, v *visit, code, cause string) {
	in.log(slog.LevelWarn, "quarantine a delivery", "code", code, "cause", cause)
	if in.queue != nil {
		in.record(v, &v.proof, &v.records[0])
		v.records[0].quarantine(code, cause)
		verdicts, err := in.put(r, v, v.records[:])
		if err == nil && verdicts[0] == Full {
			err = &Error{Code: CodeFull, Op: "store"}
		}
		if err != nil {
			in.refuse(w, err)
			return
		}
	}
	if !in.accepts(code) {
		in.refuse(w, &Error{Code: code, Op: "receive", Cause: cause})
		return
	}
	in.src.Observe(code, cause)
	in.acknowledge(w, quarantined, "")
}

// accepts reports whether a delivery that is quarantined for code is answered
// 2xx.
func (in *Inbox) accepts(code string) bool {
	if code == CodeConflict {
		return in.src.AcceptConflict
	}
	return in.src.AcceptUnreadable
}

// quarantine makes a record one that is only kept to be seen, once for each
// content.
func (r *Record) quarantine(code, cause string) {
	r.State, r.Cause = Quarantined, code+": "+cause
	body := sha256.Sum256(r.Body)
	r.identify(kindQuarantine, string(body[:]))
}

// Kinds of identity; see Record.identify.
const (
	kindEvent      byte = 0
	kindQuarantine byte = 1
	kindDelivery   byte = 2
)

// asError returns err as an *Error, with the given code where it has none.
func asError(err error, code, op string) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: code, Op: op, Err: err}
}
