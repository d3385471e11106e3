package ichido

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// errDraining is the cause of a handler's context when the worker stops.
var errDraining = errors.New("worker is draining")

// Worker works stored events: it claims them in batches, confirms them, runs
// their handlers, and settles them in batches. Any number of workers may run
// on one queue, in one process or in many.
//
// A claimed event is started at once: a worker never claims more than it has
// free slots for. What an inbox of the same process accepts while there is a
// free slot is stored as claimed and started after its commit.
//
// An event that was being handled when its process died is a suspect; a worker
// runs at most one suspect at a time, so that one event that ends processes
// does not make its neighbours look guilty. After three such deaths it is a
// dead letter.
type Worker struct {
	Queue Queue

	// Inboxes returns the sources whose events this worker handles. It is
	// asked again before each claim, so its result may change.
	Inboxes func() []*Inbox

	Lease    time.Duration // 30 s by default; renewed while a handler runs
	Poll     time.Duration // how often to look for due events that nobody announced: 1 s by default
	Bytes    int64         // bodies in memory at the same time: 64 MiB by default
	DrainFor time.Duration // how long running handlers may go on after Run's context ended: 10 s by default
	Log      *slog.Logger  // slog's default logger by default

	mu        sync.Mutex
	started   bool                    // guarded by mu: Run was called
	accepting bool                    // guarded by mu: between the start of Run and its drain
	running   map[*job]struct{}       // guarded by mu
	suspects  int                     // guarded by mu: of running
	bytes     int64                   // guarded by mu: bodies of running
	lanes     map[string]*lane        // guarded by mu: by source
	jobs      sync.WaitGroup          // running; nothing is added once accepting is false
	token     uint64                  // fence of what is offered: such an event was never claimed before
	freed     chan struct{}           // a slot became free
	settled   chan settledJob         // to the settler; closed when all jobs have ended
	base      context.Context         // of all handlers
	cut       context.CancelCauseFunc // ends base
}

// lane is what a worker knows of one source.
type lane struct {
	running  int
	caughtUp bool // the last claim left nothing that is due
}

// job is one claimed event on its way through its handler.
type job struct {
	worker  *Worker
	inbox   *Inbox
	rec     Record
	cancel  context.CancelCauseFunc // guarded by Worker.mu
	renewed time.Time               // guarded by Worker.mu
}

// settledJob is the end of a job, on its way to the store.
type settledJob struct {
	inbox *Inbox
	Settlement
}

// NewWorker returns a worker for the events of the given inboxes.
func NewWorker(q Queue, inboxes ...*Inbox) *Worker {
	return &Worker{Queue: q, Inboxes: func() []*Inbox { return inboxes }}
}

// Run works until ctx ends. Then it claims nothing more, lets running handlers
// go on for DrainFor, ends the contexts of those that are left and gives their
// attempts back, settles everything, and returns nil. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return fmt.Errorf("run worker: %w", err)
	}
	defer w.cut(nil)
	var loops sync.WaitGroup
	loops.Go(w.settleLoop)
	stopRenewing := make(chan struct{})
	loops.Go(func() { w.renewLoop(stopRenewing) })
	w.claimLoop(ctx)
	w.drain()
	close(w.settled)
	close(stopRenewing)
	loops.Wait()
	return nil
}

// start checks the settings and makes what Run needs.
func (w *Worker) start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.Queue == nil || w.Inboxes == nil:
		return errors.New("it needs a queue and inboxes; make it with NewWorker")
	case w.started:
		return errors.New("it ran already; make another one")
	}
	setDefault(&w.Lease, 30*time.Second)
	setDefault(&w.Poll, time.Second)
	setDefault(&w.Bytes, 64<<20)
	setDefault(&w.DrainFor, 10*time.Second)
	if w.Log == nil {
		w.Log = slog.Default()
	}
	w.started, w.accepting = true, true
	w.running = map[*job]struct{}{}
	w.lanes = map[string]*lane{}
	w.token = rand.Uint64()>>1 | 1
	w.freed = make(chan struct{}, 1)
	w.settled = make(chan settledJob, 512)
	w.base, w.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	return nil
}

// drain takes nothing more, waits for the running handlers, and after DrainFor
// ends their contexts and waits again: a handler that ignores its context
// holds up Run, for its event must not be given to anyone else while it runs.
func (w *Worker) drain() {
	w.mu.Lock()
	w.accepting = false
	w.mu.Unlock()
	done := make(chan struct{})
	go func() { w.jobs.Wait(); close(done) }()
	patience := time.NewTimer(w.DrainFor)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		w.cut(errDraining)
		<-done
	}
}

// claimLoop claims and starts events until ctx ends.
func (w *Worker) claimLoop(ctx context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		want, inboxes := w.want()
		if len(want.Slots) > 0 && w.claim(ctx, want, inboxes) > 0 {
			continue
		}
		poll.Reset(w.Poll)
		select {
		case <-ctx.Done():
		case <-poll.C:
		case <-w.Queue.Ready():
		case <-w.freed:
			w.gather(ctx)
		}
	}
}

// gather waits a moment for more slots to become free, so that a claim is
// worth its commit.
func (w *Worker) gather(ctx context.Context) {
	const moment = time.Millisecond
	t := time.NewTimer(moment)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// want returns what can be started now.
func (w *Worker) want() (Want, map[string]*Inbox) {
	all := w.Inboxes()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := Want{Slots: map[string]int{}, Bytes: max(w.Bytes-w.bytes, 0), Lease: w.Lease, Suspect: w.suspects == 0}
	inboxes := map[string]*Inbox{}
	if want.Bytes == 0 && len(w.running) > 0 {
		return want, inboxes
	}
	want.Bytes = max(want.Bytes, 1)
	for _, in := range all {
		if !in.isWorked() {
			continue
		}
		in.worker.Store(w)
		if free := in.src.Concurrency - w.lane(in.src.Name).running; free > 0 {
			want.Slots[in.src.Name] = free
			inboxes[in.src.Name] = in
		}
	}
	return want, inboxes
}

// isWorked reports whether the source's events are handled by a worker.
func (in *Inbox) isWorked() bool {
	return in.src.Handler != nil || in.src.Apply != nil && !in.src.InRequest
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

// claim claims and starts events, and returns how many.
func (w *Worker) claim(ctx context.Context, want Want, inboxes map[string]*Inbox) int {
	began := time.Now()
	records, err := w.Queue.Claim(context.WithoutCancel(ctx), want)
	if err != nil {
		w.Log.Error("claim events", "error", err)
		return 0
	}
	got := map[string]int{}
	var sum int64
	for i := range records {
		got[records[i].Source]++
		sum += records[i].Size
	}
	w.mu.Lock()
	for source, slots := range want.Slots {
		w.lane(source).caughtUp = got[source] < slots && sum < want.Bytes
	}
	for i := range records {
		j := &job{worker: w, inbox: inboxes[records[i].Source], rec: records[i], renewed: began}
		w.reserve(j)
		go w.work(j)
	}
	w.mu.Unlock()
	return len(records)
}

// reserve takes a slot for a job. mu is held.
func (w *Worker) reserve(j *job) {
	w.jobs.Add(1)
	w.running[j] = struct{}{}
	w.lane(j.rec.Source).running++
	w.bytes += j.rec.Size
	if j.rec.Deaths > 0 {
		w.suspects++
	}
}

// release gives a job's slot back. mu is held.
func (w *Worker) release(j *job) {
	w.jobs.Done()
	delete(w.running, j)
	w.lane(j.rec.Source).running--
	w.bytes -= j.rec.Size
	if j.rec.Deaths > 0 {
		w.suspects--
	}
}

// offer reserves a slot for an event that is about to be stored, and prepares
// its record to be stored as claimed. It returns nil when the event is to wait
// for its turn: there is no slot, or others are waiting. w may be nil.
func (w *Worker) offer(in *Inbox, rec *Record) *job {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lane(in.src.Name)
	size := int64(len(rec.Body))
	if !w.accepting || !l.caughtUp || l.running >= in.src.Concurrency || w.bytes+size > w.Bytes {
		l.caughtUp = false
		return nil
	}
	rec.State, rec.Token, rec.Lease = Claimed, w.token, w.Lease
	j := &job{worker: w, inbox: in, rec: *rec, renewed: time.Now()}
	j.rec.Size, j.rec.Attempts = size, 1
	// The record's slices are the request's: the handler gets its own.
	kept := append(append(make([]byte, 0, len(rec.Header)+len(rec.Body)), rec.Header...), rec.Body...)
	j.rec.Header, j.rec.Body = kept[:len(rec.Header):len(rec.Header)], kept[len(rec.Header):]
	w.reserve(j)
	return j
}

// decide starts an offered job whose event was accepted, or gives its slot
// back. j may be nil.
func (j *job) decide(accepted bool, seq int64) {
	if j == nil {
		return
	}
	j.rec.Seq = seq
	if accepted {
		go j.worker.work(j)
		return
	}
	j.worker.mu.Lock()
	defer j.worker.mu.Unlock()
	j.worker.release(j)
}

// work runs one job and hands its settlement on.
func (w *Worker) work(j *job) {
	ctx, cancel := context.WithCancelCause(w.base)
	defer cancel(nil)
	w.mu.Lock()
	j.cancel = cancel
	w.mu.Unlock()
	s, settle := w.try(ctx, j)
	if settle {
		j.rec.Body, j.rec.Header = nil, nil
		w.settled <- settledJob{j.inbox, s}
	}
	w.mu.Lock()
	w.release(j)
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
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

// renew extends every lease of which a third is over.
func (w *Worker) renew() {
	var jobs []*job
	var records []*Record
	now := time.Now()
	w.mu.Lock()
	for j := range w.running {
		if now.Sub(j.renewed) >= w.Lease/3 {
			rec := Record{Hash: j.rec.Hash, Source: j.rec.Source, Seq: j.rec.Seq, Token: j.rec.Token}
			jobs, records = append(jobs, j), append(records, &rec)
		}
	}
	w.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	errs, err := w.Queue.Extend(context.WithoutCancel(w.base), records, w.Lease)
	if err != nil {
		w.Log.Error("renew leases", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, j := range jobs {
		j.renewed = now
		if errors.Is(errs[i], ErrLeaseLost) && j.cancel != nil {
			j.cancel(ErrLeaseLost)
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

// settle settles a batch, trying again while the store is unavailable, for as
// long as the leases last: after that the events are due again anyway.
func (w *Worker) settle(batch []settledJob) {
	settlements := make([]Settlement, len(batch))
	for i := range batch {
		settlements[i] = batch[i].Settlement
	}
	deadline := time.Now().Add(w.Lease)
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
		time.Sleep(wait)
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
		}
		s.inbox.src.Observe(what, "")
		if s.State == Dead || errs[i] != nil {
			w.Log.Warn("an event was not settled as done", "source", s.Record.Source, "event", s.Record.ID(), "became", what, "cause", s.Cause)
		}
	}
}
