package ichido

import (
	"context"
	"errors"
	"time"
)

// settledJob is the end of a job, on its way to the store.
type settledJob struct {
	inbox *Inbox
	Settlement
}

// renewLoop renews the leases of handlers that run long.
func (w *Worker) renewLoop(stop <-chan struct{}) {
	every := time.NewTicker(max(w.Lease/6, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-stop:
			return
		case <-every.C:
			w.renew()
		}
	}
}

// renew extends every lease of which a third is over. A handler whose lease
// could not be renewed for five sixths of it loses its context: the store may
// be about to give its event to another worker.
func (w *Worker) renew() {
	var jobs []*job
	var records []*Record
	now := time.Now()
	w.mu.Lock()
	for j := range w.held {
		if now.Sub(j.renewed) >= w.Lease/3 {
			rec := Record{Hash: j.rec.Hash, Source: j.rec.Source, Seq: j.rec.Seq, Token: j.rec.Token}
			jobs, records = append(jobs, j), append(records, &rec)
		}
	}
	w.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.base), w.Lease/6)
	defer cancel()
	errs, err := w.Queue.Extend(ctx, records, w.Lease)
	if err != nil {
		w.Log.Error("renew leases", "leases", len(jobs), "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, j := range jobs {
		switch {
		case err != nil && time.Since(j.renewed) < w.Lease*5/6:
		case err != nil || errors.Is(errs[i], ErrLeaseLost):
			j.lose()
		default:
			j.renewed = now
		}
	}
}

// settleLoop settles whatever has ended, in batches, until settled is closed.
func (w *Worker) settleLoop() {
	const most = 512
	for first := range w.settled {
		batch := append(make([]settledJob, 0, most), first)
	drain:
		for len(batch) < most {
			select {
			case next, ok := <-w.settled:
				if !ok {
					break drain
				}
				batch = append(batch, next)
			default:
				break drain
			}
		}
		w.settle(batch)
	}
}

// settleWhenEnding is how long a store that cannot settle is waited for once
// Run's context has ended.
const settleWhenEnding = 2 * time.Second

// settle settles a batch, trying again while the store is unavailable, for as
// long as the leases last: after that the events are due again anyway. Where
// the process is to end it gives up soon: another one finds them unsettled,
// and a store that failed for good must not keep it.
func (w *Worker) settle(batch []settledJob) {
	settlements := make([]Settlement, len(batch))
	for i := range batch {
		settlements[i] = batch[i].Settlement
	}
	deadline := time.Now().Add(w.Lease)
	ending := w.ending
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		errs, err := w.Queue.Settle(context.Background(), settlements)
		if err == nil {
			w.report(batch, errs)
			return
		}
		if time.Now().Add(wait).After(deadline) {
			w.Log.Error("settle events; they will be tried again", "events", len(batch), "error", err)
			return
		}
		w.Log.Warn("settle events; trying again", "events", len(batch), "error", err)
		select {
		case <-time.After(wait):
		case <-ending:
			ending = nil
			if soon := time.Now().Add(settleWhenEnding); soon.Before(deadline) {
				deadline = soon
			}
		}
	}
}

// failed logs a failed attempt that will be made again, at a bounded rate.
func (w *Worker) failed(s *Settlement) {
	if times, due := w.lines.due(s.Record.Source); due {
		w.Log.Warn("an attempt failed; it will be made again", "source", s.Record.Source, "times", times,
			"event", s.Record.ID(), "attempt", s.Record.Attempts, "cause", s.Cause)
	}
}

// report tells what became of settled events.
func (w *Worker) report(batch []settledJob, errs []error) {
	for i, s := range batch {
		what := string(s.State)
		switch {
		case errs[i] != nil:
			what = "lease_lost"
		case s.State == Done:
			what = s.Outcome
		case s.State == Pending:
			what = "retry"
			if !s.GiveBack {
				w.failed(&s.Settlement)
			}
		}
		s.inbox.src.Observe(what, "")
		if s.State == Dead || errs[i] != nil {
			w.Log.Warn("an event was not settled as done", "source", s.Record.Source, "event", s.Record.ID(), "became", what, "cause", s.Cause)
		}
	}
}
