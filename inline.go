package ichido

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// serveInline is the inline mode: claim, handle, complete, and only then the
// handler's own response. The claim is released when the handler fails or
// answers other than 2xx; it stays held when the handler succeeded and
// recording that failed, so that the effect is not repeated.
func (in *Inbox) serveInline(w http.ResponseWriter, r *http.Request, v *visit, e *Event) {
	ctx := context.WithoutCancel(r.Context())
	key := in.src.Name + "/" + e.ID()
	verdict, token, err := in.claim(ctx, key)
	if err != nil {
		in.log(slog.LevelError, "claim an event", "event", e.ID(), "error", err)
		in.refuse(w, asError(err, CodeUnavailable, "claim"))
		return
	}
	switch verdict {
	case Accepted:
	case Duplicate:
		in.repeatInline(ctx, w, r, v, e)
		return
	case Full:
		in.refuse(w, &Error{Code: CodeFull, Op: "claim"})
		return
	default:
		in.refuse(w, &Error{Code: CodeInProgress, Op: "claim"})
		return
	}

	reply := &bufferedReply{header: http.Header{}}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: nobody else would release it
			in.release(ctx, key, token)
		}
	}()
	err = in.runInline(ctx, reply, e)
	returned = true
	if err != nil || !reply.ok() {
		in.release(ctx, key, token)
		in.answerFailure(w, reply, e, err)
		return
	}
	if err := in.complete(ctx, key, token); err != nil {
		in.log(slog.LevelError, "record a handled event; its claim stays held", "event", e.ID(), "error", err)
		in.refuse(w, asError(err, CodeUnavailable, "complete"))
		return
	}
	if _, err := in.keepInline(ctx, e); err != nil {
		in.log(slog.LevelError, "keep a handled event", "event", e.ID(), "error", err)
	}
	in.src.Observe(Applied, "inline")
	reply.copyTo(w)
}

func (in *Inbox) claim(ctx context.Context, key string) (Verdict, string, error) {
	ctx, cancel := context.WithTimeout(ctx, in.src.StoreTimeout)
	defer cancel()
	return in.src.Claims.Claim(ctx, key)
}

func (in *Inbox) complete(ctx context.Context, key, token string) error {
	ctx, cancel := context.WithTimeout(ctx, in.src.StoreTimeout)
	defer cancel()
	return in.src.Claims.Complete(ctx, key, token)
}

func (in *Inbox) release(ctx context.Context, key, token string) {
	ctx, cancel := context.WithTimeout(ctx, in.src.StoreTimeout)
	defer cancel()
	if err := in.src.Claims.Release(ctx, key, token); err != nil {
		in.log(slog.LevelError, "release a claim", "error", err)
	}
}

// runInline runs the handler into a buffer, with its deadline.
func (in *Inbox) runInline(ctx context.Context, reply *bufferedReply, e *Event) (err error) {
	ctx, cancel := context.WithTimeout(ctx, in.src.HandlerTimeout)
	defer cancel()
	defer recoverError(&err)
	err = in.src.Inline(ctx, reply, e)
	if reply.status == 0 {
		reply.status = http.StatusOK
	}
	return err
}

// answerFailure answers for a handler that ran in the request and failed: by
// the error that it returned, or else with its own response.
func (in *Inbox) answerFailure(w http.ResponseWriter, reply *bufferedReply, e *Event, err error) {
	var final *permanent
	switch {
	case err == nil:
		in.src.Observe(CodeFailed, "handler answered "+http.StatusText(reply.status))
		reply.copyTo(w)
	case errors.As(err, &final):
		in.log(slog.LevelWarn, "a handler rejected an event", "event", e.ID(), "error", printable(err.Error()))
		in.refuse(w, &Error{Code: CodeRejected, Op: "handle", Cause: "permanent"})
	default:
		in.log(slog.LevelError, "a handler failed", "event", e.ID(), "error", printable(err.Error()))
		in.refuse(w, &Error{Code: CodeFailed, Op: "handle", Cause: "handler error"})
	}
}

// repeatInline answers a delivery whose key was handled before. Claims know
// keys only: whether it is a duplicate or a conflict, a queue can tell.
func (in *Inbox) repeatInline(ctx context.Context, w http.ResponseWriter, r *http.Request, v *visit, e *Event) {
	verdict, err := in.keepInline(ctx, e)
	switch {
	case err != nil:
		in.log(slog.LevelError, "compare with a handled event", "event", e.ID(), "error", err)
		in.refuse(w, asError(err, CodeUnavailable, "store"))
	case verdict == Conflict:
		in.answer(w, r, v.again(), verdict)
	default:
		in.src.Observe(Duplicate.String(), "")
		w.WriteHeader(http.StatusNoContent)
	}
}

// keepInline stores a handled event to be seen, and with Keep to be replayed,
// and returns the queue's verdict: Duplicate where there is no queue.
func (in *Inbox) keepInline(ctx context.Context, e *Event) (Verdict, error) {
	if in.queue == nil {
		return Duplicate, nil
	}
	rec := e.rec
	rec.State, rec.Outcome = Done, Applied
	if !in.src.Keep {
		rec.Body, rec.Purged = nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, in.src.StoreTimeout)
	defer cancel()
	verdicts, err := in.queue.Put(ctx, []Record{rec})
	if err != nil || len(verdicts) != 1 {
		return 0, cmp.Or(err, errVerdicts)
	}
	return verdicts[0], nil
}

// applyNow is the transaction mode during the request: row, effect and
// completion in one transaction, then the answer.
func (in *Inbox) applyNow(w http.ResponseWriter, r *http.Request, v *visit, e *Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.src.StoreTimeout)
	defer cancel()
	rec := e.rec
	verdict, err := in.src.Apply.Accept(ctx, &rec, e, in.src.HandlerTimeout)
	switch {
	case err == nil:
		in.answer(w, r, v.again(), verdict)
	case errors.Is(err, ErrUnavailable):
		in.log(slog.LevelError, "apply an event", "event", e.ID(), "error", err)
		in.refuse(w, asError(err, CodeUnavailable, "apply"))
	default:
		in.answerFailure(w, nil, e, err)
	}
}

// again returns a visit of the same delivery, for an answer while a handler
// may still be reading the first one.
func (v *visit) again() *visit {
	return &visit{delivery: v.delivery, proof: v.proof, records: v.records}
}

// bufferedReply keeps a handler's response until its claim is completed.
type bufferedReply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// ok reports whether the handler answered 2xx.
func (b *bufferedReply) ok() bool { return b.status/100 == 2 }

func (b *bufferedReply) Header() http.Header { return b.header }

func (b *bufferedReply) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *bufferedReply) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

func (b *bufferedReply) copyTo(w http.ResponseWriter) {
	for name, values := range b.header {
		w.Header()[name] = values
	}
	w.WriteHeader(b.status)
	w.Write(b.body.Bytes())
}

// recoverError turns a panic of a handler into its error.
func recoverError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s", panicText(p))
	}
}
