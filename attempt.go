package ichido

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Causes that a worker writes itself.
const (
	causePoison      = "poison: three processes ended while handling it"
	causeExhausted   = "attempts used up"
	causeUnconfirmed = "unconfirmed: not true by its deadline"
	maxDeaths        = 3
)

// errGoexit is the error of a handler that ended its goroutine.
var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// try is attempt; a panic on the way, of a provider for one, is a failed
// attempt and not the end of the process.
func (w *Worker) try(ctx context.Context, j *job) (s Settlement, settle bool) {
	defer func() {
		if p := recover(); p != nil {
			s, settle = j.inbox.conclude(ctx, Settlement{Record: &j.rec}, errors.New(panicText(p))), true
		}
	}()
	return w.attempt(ctx, j)
}

// attempt takes a claimed event through inspection, confirmation and handler,
// and returns how its claim ends. It reports false when the claim has ended
// already: its lease was lost, or it was completed in its own transaction.
func (w *Worker) attempt(ctx context.Context, j *job) (Settlement, bool) {
	in, rec := j.inbox, &j.rec
	s := Settlement{Record: rec}
	if rec.Deaths >= maxDeaths {
		return s.dead(causePoison), true
	}
	if rec.Attempts > in.src.Attempts {
		return s.dead(causeExhausted), true
	}
	// What ends the process from here on is counted as this event's doing. One
	// that waits for a transaction first is marked by its Applier.
	if in.src.Apply == nil || in.src.Confirm != nil {
		w.Queue.Mark(rec, true)
		defer w.Queue.Mark(rec, false)
	}
	e := &Event{rec: *rec}
	content, err := rec.readable(in.src.Encoding, in.src.BodyLimit)
	if err == nil {
		e.payload, err = in.inspectStored(rec.Type, content)
	}
	if err != nil {
		return s.unfit(err), true
	}
	if in.src.Confirm != nil {
		if end, over := w.confirm(ctx, j, e); over {
			return end, true
		}
	}
	if in.src.Apply != nil {
		rec.Confirmed = e.confirmed
		if in.src.Confirm != nil {
			w.Queue.Mark(rec, false)
		}
		err = in.apply(ctx, rec, e)
		switch {
		case err == nil:
			in.src.Observe(Applied, "transaction")
			return s, false
		case errors.Is(err, ErrLeaseLost):
			return s, false
		case errors.Is(err, ErrUnavailable): // the store's, not the handler's
			return in.postpone(s, err), true
		}
		return in.conclude(ctx, s, err), true
	}
	ctx, cancel := context.WithTimeout(ctx, in.src.HandlerTimeout)
	defer cancel()
	err = in.handle(ctx, e)
	s.Confirmed = e.confirmed
	return in.conclude(ctx, s, err), true
}

// inspectStored is inspect, with a plain error.
func (in *Inbox) inspectStored(eventType string, body []byte) ([]byte, error) {
	payload, err := in.inspect(eventType, body)
	if err != nil {
		return nil, err
	}
	return payload, nil
}

// handle runs the handler; a panic is its error. A handler of the inline mode
// has nobody to answer when its event is replayed: its response only says
// whether it failed.
func (in *Inbox) handle(ctx context.Context, e *Event) (err error) {
	if in.src.Inline != nil {
		reply := &bufferedReply{header: http.Header{}}
		if err = in.runInline(ctx, reply, e); err == nil && !reply.ok() {
			err = fmt.Errorf("the handler answered %d", reply.status)
		}
		return err
	}
	defer recoverError(&err)
	return in.src.Handler(ctx, e)
}

// apply completes the event in a transaction of its store. It waits for its
// turn as long as the lease is renewed: the deadline is the handler's alone.
func (in *Inbox) apply(ctx context.Context, rec *Record, e *Event) (err error) {
	defer recoverError(&err)
	return in.src.Apply.Complete(ctx, rec, e, in.src.HandlerTimeout)
}

// conclude turns what a handler returned into the end of its claim.
func (in *Inbox) conclude(ctx context.Context, s Settlement, err error) Settlement {
	var final *permanent
	var wish *retryAfter
	switch {
	case err == nil:
		s.State, s.Outcome = Done, in.src.Outcome
	case errors.Is(context.Cause(ctx), errDraining):
		s.State, s.GiveBack, s.Cause = Pending, true, errDraining.Error()
	case errors.Is(context.Cause(ctx), ErrLeaseLost):
		s = in.postpone(s, ErrLeaseLost)
	case errors.As(err, &final):
		s = s.dead(err.Error())
	case s.Record.Attempts >= in.src.Attempts:
		s = s.dead(causeExhausted + ": " + err.Error())
	default:
		s.State, s.Cause, s.After = Pending, printable(err.Error()), backoff(in.src.Backoff, s.Record.Attempts)
		if errors.As(err, &wish) {
			s.After = wish.after
		}
	}
	return s
}

// postpone returns the settlement of an attempt that could not be made: it is
// not counted, and made again later.
func (in *Inbox) postpone(s Settlement, err error) Settlement {
	s.State, s.GiveBack, s.Cause = Pending, true, printable(err.Error())
	s.After = backoff(in.src.Backoff, s.Record.Attempts)
	return s
}

// confirm asks the provider's API. It reports over=false when the event is
// confirmed and its handler may start; otherwise it returns how the claim
// ends.
func (w *Worker) confirm(ctx context.Context, j *job, e *Event) (end Settlement, over bool) {
	in, rec := j.inbox, &j.rec
	end = Settlement{Record: rec}
	state, err := in.ask(ctx, e)
	age := time.Since(rec.ReceivedAt)
	switch {
	case errors.Is(err, ErrRefuted):
		end.State, end.Outcome, end.Cause, end.Confirmed = Done, Refuted, printable(err.Error()), state
		return end, true
	case errors.Is(err, ErrNotYet) && age > in.src.ConfirmFor:
		return end.dead(causeUnconfirmed), true
	case errors.Is(err, ErrNotYet):
		end.State, end.GiveBack, end.After, end.Cause = Pending, true, notYetDelay(age), printable(err.Error())
		var wish *retryAfter
		if errors.As(err, &wish) {
			end.After = wish.after
		}
		return end, true
	case err != nil:
		return in.conclude(ctx, end, err), true
	}
	e.confirmed = state
	return end, false
}

// ask runs the source's confirmation with the deadline of an attempt.
func (in *Inbox) ask(ctx context.Context, e *Event) (state []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, in.src.HandlerTimeout)
	defer cancel()
	defer recoverError(&err)
	return in.src.Confirm(ctx, e)
}

// dead returns the settlement as a dead letter.
func (s Settlement) dead(cause string) Settlement {
	s.State, s.Cause = Dead, printable(cause)
	return s
}

// unfit returns the settlement of a stored event that must not reach its
// handler: unreadable bytes are quarantined; a body that lacks what its type
// must have is a dead letter, which can be replayed when that was our error.
func (s Settlement) unfit(err error) Settlement {
	e := asError(err, CodeUnreadable, "inspect")
	s.State, s.Cause = Dead, printable(e.Code+": "+e.Cause)
	if e.Code == CodeUnreadable {
		s.State = Quarantined
	}
	return s
}

// readable returns the stored body with its encoding undone.
func (r *Record) readable(encoding string, limit int64) ([]byte, error) {
	if encoding != encodingWire || r.Headers().Get("Content-Encoding") == "" {
		return r.Body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(r.Body))
	if err != nil {
		return nil, &Error{Code: CodeUnreadable, Op: "decode", Cause: "gzip"}
	}
	plain, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil || int64(len(plain)) > limit {
		return nil, &Error{Code: CodeUnreadable, Op: "decode", Cause: "gzip"}
	}
	return plain, nil
}
