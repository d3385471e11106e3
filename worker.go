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
// on one queue; in how many processes, the queue says: an SQLite database is
// worked by one.
//
// A worker claims what it has free slots for, and once a second a few events
// more, so that retries get their turn beside what arrives. What an inbox of the
// same process accepts while nothing older waits is stored as claimed, and
// started as soon as it is committed and there is a slot.
//
// An event that was being worked on when its process died is a suspect until an
// attempt has ended; a worker runs at most one suspect of a source at a time, so
// that an event that ends processes does not make its neighbours look guilty.
// After three such deaths in a row it is a dead letter.
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
	started   bool              // guarded by mu: Run was called
	accepting bool              // guarded by mu: between the start of Run and its drain
	held      map[*job]struct{} // guarded by mu: claimed, running or waiting for a slot
	bytes     int64             // guarded by mu: bodies of held and pledged
	lanes     map[string]*lane  // guarded by mu: by source
	jobs      sync.WaitGroup    // held and pledged; nothing is added once accepting is false
	token     uint64            // fence of what is offered: such an event was never claimed before
	idle      chan *job         // to goroutines without a job; unbuffered
	freed     chan struct{}     // a slot became free, and there may be events that wait for one
	settled   chan settledJob   // to the settler; closed when all jobs have ended
	lines     lines
	ending    <-chan struct{}         // closed when Run's context has ended
	base      context.Context         // of all handlers
	cut       context.CancelCauseFunc // ends base
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
	w.held = map[*job]struct{}{}
	w.lanes = map[string]*lane{}
	w.token = rand.Uint64()>>1 | 1
	w.idle = make(chan *job)
	w.freed = make(chan struct{}, 1)
	w.settled = make(chan settledJob, 512)
	w.ending = ctx.Done()
	w.base, w.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	return nil
}

// drain takes nothing more, gives back what waits for a slot, waits for the
// running handlers, and after DrainFor ends their contexts and waits again: a
// handler that ignores its context holds up Run, for its event must not be
// given to anyone else while it runs.
func (w *Worker) drain() {
	w.mu.Lock()
	w.accepting = false
	for _, l := range w.lanes {
		for _, j := range l.waiting {
			go w.giveBack(j)
		}
		l.waiting = nil
	}
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
	for look := true; ctx.Err() == nil; {
		want, inboxes := w.want(look)
		look = false
		if len(want.Slots) > 0 && w.claim(ctx, want, inboxes) > 0 {
			continue
		}
		poll.Reset(w.Poll)
		select {
		case <-ctx.Done():
		case <-poll.C:
			look = true
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

// want returns what can be started now. With look it wants a few events also of
// sources without a free slot: where every slot is taken by what arrives, what
// becomes due in the meantime would wait for ever. If there are as many, the
// next ones that arrive have to stand in line.
func (w *Worker) want(look bool) (Want, map[string]*Inbox) {
	all := w.Inboxes()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := Want{Slots: map[string]int{}, Bytes: max(w.Bytes-w.bytes, 0), Lease: w.Lease, Suspects: map[string]bool{}}
	inboxes := map[string]*Inbox{}
	if want.Bytes == 0 {
		return want, inboxes
	}
	for _, in := range all {
		if !in.isWorked() {
			continue
		}
		in.worker.Store(w)
		l := w.lane(in.src.Name)
		free := in.src.Concurrency - l.running - l.pledged - len(l.waiting)
		if free <= 0 && look {
			free = 1 + in.src.Concurrency/8
		}
		if free <= 0 {
			continue
		}
		want.Slots[in.src.Name] = free
		want.Suspects[in.src.Name] = l.suspects == 0
		inboxes[in.src.Name] = in
	}
	return want, inboxes
}

// isWorked reports whether a worker can handle the source's events. Those that
// are handled in the request reach it only when they are replayed.
func (in *Inbox) isWorked() bool {
	return in.src.Handler != nil || in.src.Inline != nil || in.src.Apply != nil
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
		w.jobs.Add(1)
		w.bytes += j.rec.Size
		w.hold(j)
	}
	w.mu.Unlock()
	return len(records)
}
