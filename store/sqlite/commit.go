package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ichido.dev/ichido"
)

// op is one call that waits for the committer.
type op struct {
	name  string                // verb and noun, for errors
	phase phase                 // its place inside the transaction
	rows  int                   // how much of a batch it is
	bytes int64                 // bodies that it writes
	run   func(t *txn) error    // inside the group's transaction; must give the same when run again
	alone func(w *writer) error // or: has the connection for itself
	done  chan error            // receives one answer; has room for it
	state atomic.Int32          // queued, then taken or withdrawn; see begun

	// begins says that the operation is taken only when it says so itself, with
	// begin: waiting for another process's lock is waiting, too.
	begins bool
}

// begin reports whether the operation is still wanted; then it is taken.
func (o *op) begin() bool { return o.state.CompareAndSwap(taken, begun) }

// withdraw takes the operation back, unless it is too late.
func (o *op) withdraw() bool {
	return o.state.CompareAndSwap(queued, withdrawn) || o.begins && o.state.CompareAndSwap(taken, withdrawn)
}

// phase orders the operations of one transaction: what arrives is claimed at
// once, and what ended makes room before.
type phase int

const (
	putPhase phase = iota
	settlePhase
	extendPhase
	claimPhase
	otherPhase // replay, purge
)

const (
	queued int32 = iota
	taken
	begun // of an operation that begins
	withdrawn
)

// txn is one transaction of the committer. What it changes in memory is kept
// here until it is committed.
type txn struct {
	s    *Store
	w    *writer
	now  int64 // ms
	seq  int64 // the next one; 0 until asked for
	room int64 // new events that may be stored; -1 until asked for

	added int64           // events
	wake  bool            // something may have become due
	fresh []ichido.Record // pending events that were accepted
	after []func()        // run once it is committed

	claimsHeld, claimsCompleted int64 // inline claims more or less
}

// do hands an operation to the committer and waits for its answer. With wait,
// the context counts only until the operation is taken.
func (s *Store) do(ctx context.Context, o *op, wait bool) error {
	o.done = make(chan error, 1)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	if err := s.send(o); err != nil {
		return err
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
	}
	if !o.withdraw() && wait {
		return <-o.done
	}
	return fmt.Errorf("%s: %w", o.name, ctx.Err())
}

func (s *Store) send(o *op) error {
	if err := s.Err(); err != nil {
		return unavailable(o.name, broken, err)
	}
	s.sending.RLock()
	defer s.sending.RUnlock()
	if s.closed {
		return unavailable(o.name, closing, nil)
	}
	queue := s.ops
	if o.alone != nil {
		queue = s.alone
	}
	select {
	case queue <- o:
		return nil
	default:
		return unavailable(o.name, busyHere, nil)
	}
}

// committer is the only goroutine that writes. It takes what waits, without
// waiting for more: alone, a call costs one commit; under load the group grows
// by itself while the one before it is flushed. Only settling and extending,
// for which no sender waits, look out for a commit to share.
//
// What must have the connection for itself waits apart and takes turns with
// the groups: it runs handlers, and a crowd of those must not hold up senders
// and leases for longer than one of them takes.
func (s *Store) committer() {
	defer close(s.stopped)
	defer s.w.close()
	c := &committing{s: s}
	for o := s.next(); o != nil; o = s.next() {
		c.work(o)
	}
	for o := range s.ops {
		c.work(o)
	}
	for o := range s.alone {
		c.work(o)
	}
	c.log.checkpoint(s, 0)
}

// next returns what is to be committed next, nil once the store is closed.
func (s *Store) next() *op {
	select {
	case o := <-s.ops:
		return o
	default:
	}
	select {
	case o := <-s.ops:
		return o
	case o := <-s.alone:
		return o
	}
}

// committing is what the committer remembers from one commit to the next.
type committing struct {
	s     *Store
	group []*op
	log   walSize
}

// work commits an operation, and those that share its commit.
func (c *committing) work(o *op) {
	if o.alone != nil {
		c.exclusive(o)
		return
	}
	for o != nil {
		c.group, o = c.s.gather(c.group[:0], o)
		c.s.process(c.group, &c.log)
		clear(c.group)
		select {
		case alone := <-c.s.alone:
			c.exclusive(alone)
		default:
		}
	}
}

// exclusive runs an operation that has the connection for itself. o may be
// nil.
func (c *committing) exclusive(o *op) {
	if o == nil || !o.state.CompareAndSwap(queued, taken) {
		return
	}
	o.done <- c.s.exclusive(o)
	c.log.add(1, o.bytes)
	c.log.checkpoint(c.s, walPages)
}

// gather fills a group from the queue, up to the limits of a batch. It returns
// the first one that did not fit.
func (s *Store) gather(group []*op, o *op) (_ []*op, rest *op) {
	var rows int
	var bytes int64
	shared := false
	var patience <-chan time.Time
	for {
		rows, bytes = rows+o.rows, bytes+o.bytes
		if len(group) > 0 && (rows > s.opt.MaxBatch || bytes > s.opt.MaxBatchBytes) {
			return group, o
		}
		if o.state.CompareAndSwap(queued, taken) {
			group = append(group, o)
			shared = shared || o.phase != settlePhase && o.phase != extendPhase
		}
		var next *op
		select {
		case next = <-s.ops:
		default:
			if shared || len(group) == 0 {
				return group, nil
			}
			if patience == nil {
				patience = time.After(shareFor)
			}
			select {
			case next = <-s.ops:
			case <-patience:
				return group, nil
			}
		}
		if next == nil { // closed
			return group, nil
		}
		o = next
	}
}

// shareFor is how long settling and extending wait for a commit to share. A
// commit of their own would cost as much as the next sender's, who would wait
// for both.
const shareFor = 2 * time.Millisecond

// process commits a group and answers each operation, the failed ones too.
func (s *Store) process(group []*op, log *walSize) {
	if len(group) == 0 {
		return
	}
	err := s.commit(group)
	for errors.Is(err, errAgain) { // at most once for each operation
		err = s.commit(group)
	}
	if err != nil && len(group) > 1 && classify(err) == rejected && !errors.Is(err, errCommit) && s.Err() == nil {
		// One of them carries something that the database refuses. Each gets
		// a transaction of its own, so that the others do not suffer for it.
		for _, o := range group {
			o.done <- s.named(o, s.commit([]*op{o}))
		}
	} else {
		for _, o := range group {
			o.done <- s.named(o, err)
		}
	}
	for _, o := range group {
		log.add(o.rows, o.bytes)
	}
	log.checkpoint(s, walPages)
}

func (s *Store) named(o *op, err error) error {
	if err == nil {
		return nil
	}
	return unavailable(o.name, classify(err), err)
}

// exclusive runs an operation that has the connection for itself.
func (s *Store) exclusive(o *op) error {
	if err := s.check(); err != nil {
		return unavailable(o.name, broken, err)
	}
	if err := s.w.clean(); err != nil {
		return s.named(o, s.judge(err))
	}
	return o.alone(s.w)
}

// judge marks the store as broken where an error says so.
func (s *Store) judge(err error) error {
	if err != nil && classify(err) == broken {
		s.fail(fmt.Errorf("the database failed and its state is unknown, restart the process: %w", err))
	}
	return err
}

// commit runs a group in one transaction. It never commits twice: after a
// failed flush the kernel may have dropped the pages, and a second one that
// succeeds would lie.
func (s *Store) commit(group []*op) error {
	if err := s.check(); err != nil {
		return err
	}
	t := &txn{s: s, w: s.w, now: s.now(), room: -1}
	if err := s.judge(t.run(group)); err != nil {
		s.w.undo()
		return err
	}
	s.commits.Add(1)
	s.rows += t.added
	s.fresh.remember(t.fresh, t.now)
	for _, f := range t.after {
		f()
	}
	if t.wake {
		s.wake()
	}
	return nil
}

func (t *txn) run(group []*op) error {
	if err := t.w.clean(); err != nil {
		return err
	}
	if _, err := t.w.begin.Exec(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	slices.SortStableFunc(group, func(a, b *op) int { return cmp.Compare(a.phase, b.phase) })
	for _, o := range group {
		if err := o.run(t); err != nil {
			return err
		}
	}
	if _, err := t.w.commit.Exec(); err != nil {
		return fmt.Errorf("%w: %w", errCommit, err)
	}
	return nil
}

// errCommit marks the failure of a commit. Nobody knows for certain what
// became of it, so nothing of it is run again.
var errCommit = errors.New("commit")

// undo rolls back. Where SQLite did so by itself it has nothing to do, and
// says so with an error.
func (w *writer) undo() {
	w.open = true
	_ = w.clean()
}

// clean makes sure that no transaction is open.
func (w *writer) clean() error {
	if !w.open {
		return nil
	}
	if _, err := w.rollback.Exec(); err != nil && classify(err) != rejected {
		return fmt.Errorf("roll back: %w", err)
	}
	w.open = false
	return nil
}

// walPages is about how long the log grows before it is copied into the
// database.
const walPages = 1000

// walSize estimates the pages in the log, and corrects the estimate whenever
// SQLite tells them.
type walSize struct {
	pages float64 // estimated
	ratio float64 // pages told for one page estimated; 0 where none were told yet
}

// add counts what one operation wrote.
func (l *walSize) add(rows int, bytes int64) {
	pages := 1 + float64(rows) + float64(bytes)/3000
	if l.ratio > 0 {
		pages *= l.ratio
	}
	l.pages += pages
}

// checkpoint copies the log into the database when it has grown to limit. It
// runs between two commits and after the answers, so nobody waits for it who
// does not come later.
func (l *walSize) checkpoint(s *Store, limit float64) {
	if l.pages < limit || s.Err() != nil {
		return
	}
	var busy, pages, copied int
	err := s.w.checkpoint.QueryRow().Scan(&busy, &pages, &copied)
	if err != nil {
		_ = s.judge(fmt.Errorf("checkpoint: %w", err))
		l.pages = 0 // try again after as much again
		return
	}
	if l.pages > 0 && pages > 0 {
		if l.ratio == 0 {
			l.ratio = 1
		}
		l.ratio = min(max(l.ratio*float64(pages)/l.pages, 0.05), 20)
	}
	// What a reader still holds stays in the log; it is not tried again at once.
	l.pages = 0
}
