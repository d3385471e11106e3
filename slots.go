package ichido

import (
	"context"
	"time"
)

// lane is what a worker knows of one source.
type lane struct {
	running  int
	suspects int    // held, at most one
	pledged  int    // offered, and not decided yet
	waiting  []*job // claimed, for the next slot
	caughtUp bool   // the last claim left nothing that is due
}

// job is one claimed event on its way through its handler.
type job struct {
	worker  *Worker
	inbox   *Inbox
	rec     Record
	cancel  context.CancelCauseFunc // guarded by Worker.mu
	renewed time.Time               // guarded by Worker.mu
	lost    bool                    // guarded by Worker.mu: its lease cannot be relied on
}

// suspect reports whether the event may be what ended processes.
func (j *job) suspect() bool { return j.rec.Deaths > 0 }

// lose ends the handler of a job whose lease is lost, or keeps it from being
// started. Worker.mu is held.
func (j *job) lose() {
	j.lost = true
	if j.cancel != nil {
		j.cancel(ErrLeaseLost)
	}
}

// lane returns the lane of a source. mu is held.
func (w *Worker) lane(source string) *lane {
	l := w.lanes[source]
	if l == nil {
		l = &lane{}
		w.lanes[source] = l
	}
	return l
}

// hold starts a claimed job, or has it wait for a slot. mu is held.
func (w *Worker) hold(j *job) {
	w.held[j] = struct{}{}
	l := w.lane(j.rec.Source)
	if j.suspect() {
		l.suspects++
	}
	if l.running >= j.inbox.src.Concurrency {
		l.waiting = append(l.waiting, j)
		return
	}
	l.running++
	w.run(j)
}

// run has a goroutine work the job: one that is idle, or a new one. They are
// kept, because a new stack that grows costs as much as a small handler.
func (w *Worker) run(j *job) {
	select {
	case w.idle <- j:
	default:
		go w.hand(j)
	}
}

// hand works one job after the other, until Run has ended.
func (w *Worker) hand(j *job) {
	for {
		w.work(j)
		select {
		case j = <-w.idle:
		case <-w.base.Done():
			return
		}
	}
}

// drop lets go of a job that has ended, or was never claimed. mu is held.
func (w *Worker) drop(j *job) {
	if _, held := w.held[j]; held && j.suspect() {
		w.lane(j.rec.Source).suspects--
	}
	delete(w.held, j)
	w.bytes -= j.rec.Size
	w.jobs.Done()
}

// lineFactor is how many offered events may wait for each slot. Once one is
// refused the next ones stand in the store's line, where each costs more: a
// burst must not send them there, or a busy worker would never catch up.
const lineFactor = 4

// offer pledges a slot, now or soon, to an event that is about to be stored,
// and prepares its record to be stored as claimed. It returns nil when the
// event is to wait for its turn: others are waiting for theirs. w may be nil.
func (w *Worker) offer(in *Inbox, rec *Record) *job {
	if w == nil {
		return nil
	}
	size := int64(len(rec.Body))
	w.mu.Lock()
	l := w.lane(in.src.Name)
	if !w.accepting || !l.caughtUp || l.pledged+len(l.waiting) >= lineFactor*in.src.Concurrency || w.bytes+size > w.Bytes {
		l.caughtUp = false
		w.mu.Unlock()
		return nil
	}
	l.pledged++
	w.bytes += size
	w.jobs.Add(1)
	w.mu.Unlock()
	rec.State, rec.Token, rec.Lease = Claimed, w.token, w.Lease
	j := &job{worker: w, inbox: in, rec: *rec, renewed: time.Now()}
	j.rec.Size, j.rec.Attempts = size, 1
	// The record's slices are the request's: the handler gets its own.
	kept := append(append(make([]byte, 0, len(rec.Header)+len(rec.Body)), rec.Header...), rec.Body...)
	j.rec.Header, j.rec.Body = kept[:len(rec.Header):len(rec.Header)], kept[len(rec.Header):]
	return j
}

// decide takes over an offered job whose event was accepted, or takes the
// pledge back. j may be nil.
func (j *job) decide(accepted bool, seq int64) {
	if j == nil {
		return
	}
	w := j.worker
	j.rec.Seq = seq
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lane(j.rec.Source).pledged--
	switch {
	case !accepted:
		w.drop(j)
	case w.accepting:
		w.hold(j)
	default:
		w.held[j] = struct{}{}
		go w.giveBack(j)
	}
}

// work runs one job, hands its settlement on, and gives its slot to the next:
// also when the handler ends its goroutine (runtime.Goexit), which nothing can
// stop.
func (w *Worker) work(j *job) {
	ctx, cancel := context.WithCancelCause(w.base)
	defer cancel(nil)
	w.mu.Lock()
	j.cancel = cancel
	lost := j.lost
	w.mu.Unlock()
	returned := lost
	defer func() {
		if !returned {
			w.end(j, j.inbox.conclude(ctx, Settlement{Record: &j.rec}, errGoexit))
		}
		w.next(j)
	}()
	if lost {
		return
	}
	s, settle := w.try(ctx, j)
	returned = true
	if settle {
		w.end(j, s)
	}
}

// next gives the slot of a job that has ended to one that waits for it.
func (w *Worker) next(j *job) {
	w.mu.Lock()
	w.drop(j)
	l := w.lane(j.rec.Source)
	if len(l.waiting) > 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		w.run(next)
	} else {
		l.running--
	}
	behind := !l.caughtUp || j.suspect() // the next suspect waits for this one
	w.mu.Unlock()
	if !behind {
		return
	}
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// giveBack ends the claim of a job that never started.
func (w *Worker) giveBack(j *job) {
	w.end(j, Settlement{Record: &j.rec, State: Pending, GiveBack: true, Cause: errDraining.Error()})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(j)
}

// end hands a settlement to the settler.
func (w *Worker) end(j *job, s Settlement) {
	j.rec.Body, j.rec.Header = nil, nil
	w.settled <- settledJob{j.inbox, s}
}
