package ichido

import (
	"context"
	"errors"
	"log/slog"
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
// free slots for. An event that was being handled when its process died is a
// suspect; a worker runs at most one suspect at a time, so that one event that
// ends processes does not make its neighbours look guilty. After three such
// deaths it is a dead letter.
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
	running   map[*job]struct{} // guarded by mu
	bytes     int64             // guarded by mu: bodies of running
	perSource map[string]int    // guarded by mu: how many are running

	freed   chan struct{}      // a slot became free
	settled chan settledJob    // to the settler; closed when all jobs have ended
	base    context.Context    // of all handlers
	cut     context.CancelFunc // ends base
}

// job is one claimed event on its way through its handler.
type job struct {
	inbox   *Inbox
	rec     Record
	cancel  context.CancelCauseFunc
	renewed time.Time // guarded by Worker.mu
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
	if w.Queue == nil || w.Inboxes == nil {
		return errors.New("run worker: it needs a queue and inboxes; make it with NewWorker")
	}
	setDefault(&w.Lease, 30*time.Second)
	setDefault(&w.Poll, time.Second)
	setDefault(&w.Bytes, 64<<20)
	setDefault(&w.DrainFor, 10*time.Second)
	if w.Log == nil {
		w.Log = slog.Default()
	}
	w.running = map[*job]struct{}{}
	w.perSource = map[string]int{}
	w.freed = make(chan struct{}, 1)
	w.settled = make(chan settledJob, 512)
	var jobs, loops sync.WaitGroup
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	w.base, w.cut = base, func() { cut(errDraining) }

	loops.Go(w.settleLoop)
	stopRenewing := make(chan struct{})
	loops.Go(func() { w.renewLoop(stopRenewing) })
	w.claimLoop(ctx, &jobs)
	w.drain(&jobs)
	close(w.settled)
	close(stopRenewing)
	loops.Wait()
	w.cut()
	return nil
}

// drain waits for the running handlers, and after DrainFor ends their
// contexts and waits again: a handler that ignores its context holds up Run,
// for its event must not be given to anyone else while it runs.
func (w *Worker) drain(jobs *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { jobs.Wait(); close(done) }()
	patience := time.NewTimer(w.DrainFor)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		w.cut()
		<-done
	}
}

// claimLoop claims and starts events until ctx ends.
func (w *Worker) claimLoop(ctx context.Context, jobs *sync.WaitGroup) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for ctx.Err() == nil {
		want, inboxes := w.want()
		n := 0
		if len(want.Slots) > 0 {
			n = w.claim(ctx, want, inboxes, jobs)
		}
		if n > 0 {
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
	w.mu.Lock()
	defer w.mu.Unlock()
	want := Want{Slots: map[string]int{}, Bytes: w.Bytes - w.bytes, Lease: w.Lease, Suspect: true}
	inboxes := map[string]*Inbox{}
	for j := range w.running {
		if j.rec.Deaths > 0 {
			want.Suspect = false
		}
	}
	if want.Bytes <= 0 && len(w.running) > 0 {
		return want, inboxes
	}
	want.Bytes = max(want.Bytes, 1)
	for _, in := range w.Inboxes() {
		if in.src.Handler == nil && (in.src.Apply == nil || in.src.InRequest) {
			continue
		}
		if free := in.src.Concurrency - w.perSource[in.src.Name]; free > 0 {
			want.Slots[in.src.Name] = free
			inboxes[in.src.Name] = in
		}
	}
	return want, inboxes
}

// claim claims and starts events, and returns how many.
func (w *Worker) claim(ctx context.Context, want Want, inboxes map[string]*Inbox, jobs *sync.WaitGroup) int {
	began := time.Now()
	records, err := w.Queue.Claim(context.WithoutCancel(ctx), want)
	if err != nil {
		w.Log.Error("claim events", "error", err)
		return 0
	}
	for i := range records {
		j := &job{inbox: inboxes[records[i].Source], rec: records[i], renewed: began}
		w.mu.Lock()
		w.running[j] = struct{}{}
		w.perSource[j.rec.Source]++
		w.bytes += j.rec.Size
		w.mu.Unlock()
		jobs.Go(func() { w.work(j) })
	}
	return len(records)
}

// work runs one job and hands its settlement on.
func (w *Worker) work(j *job) {
	ctx, cancel := context.WithCancelCause(w.base)
	defer cancel(nil)
	w.mu.Lock()
	j.cancel = cancel
	w.mu.Unlock()
	s, settle := w.attempt(ctx, j)
	w.mu.Lock()
	delete(w.running, j)
	w.perSource[j.rec.Source]--
	w.bytes -= j.rec.Size
	w.mu.Unlock()
	if settle {
		j.rec.Body, j.rec.Header = nil, nil
		w.settled <- settledJob{j.inbox, s}
	}
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
	errs, err := w.Queue.Extend(w.base, records, w.Lease)
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
