package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"ichido.dev/ichido"
)

// running is what handlers of this process are working on now. It is kept in
// a file that is mapped into memory: a note costs no system call, and is still
// there when the process has ended, however it ended. A power cut may lose it.
//
// The file is the lock by which one process at a time works the events of a
// database. Whoever gets it knows that the one before is gone, counts what
// that one was working on, and need not wait for its leases to end.
type running struct {
	owning sync.Mutex // held to get or give up the lock; guards owned and lock
	owned  bool
	lock   *os.File // nil where the system has no such lock

	mu    sync.Mutex      // guards everything below
	file  []byte          // runningSlots marks; nil where there is no lock
	free  []int           // slots without a mark
	marks map[claim]*mark // of claims that are not settled; none for one that has not started
}

// mark is what is noted of a claim whose handler has started.
type mark struct {
	slot  int // in the file; -1 for none
	ended bool
}

// phase is the mark as it is stored of a lapsed claim.
func (m *mark) phase() int {
	switch {
	case m == nil:
		return 0
	case m.ended:
		return phaseEnded
	}
	return phaseRunning
}

const (
	phaseRunning = 1 // whatever ended the process may have been this event
	phaseEnded   = 2 // the attempt was made; how it ended was not settled

	endedBit = 1 << 63 // of a seq in the file
)

// claim names one claim of one event.
type claim struct {
	seq   int64
	token uint64
}

const (
	runningSlots = 4096
	markSize     = 16 // seq and token, little-endian
)

// own takes the lock, unless this process has it.
func (s *Store) own(ctx context.Context) error {
	r := &s.running
	r.owning.Lock()
	defer r.owning.Unlock()
	if r.owned {
		return nil
	}
	path := s.path + "-worker.lock"
	lock, supported, err := lockFile(path)
	if err != nil {
		return unavailable("own events", rejected, err)
	}
	if supported && lock == nil {
		return unavailable("own events", busyElsewhere,
			fmt.Errorf("another process works the events of this database (it holds a lock on %s): only one can", path))
	}
	if lock != nil {
		if err := s.files.watchFile(lock); err != nil {
			return unavailable("own events", rejected, errors.Join(err, lock.Close()))
		}
		if err := s.takeOver(ctx, lock); err != nil {
			return errors.Join(err, lock.Close())
		}
	}
	r.owned, r.lock = true, lock
	return nil
}

// takeOver makes what the process before this one had claimed due, and takes
// its file.
func (s *Store) takeOver(ctx context.Context, lock *os.File) error {
	if err := fill(lock, runningSlots*markSize); err != nil {
		return unavailable("own events", rejected, err)
	}
	file, err := mapFile(lock, runningSlots*markSize)
	if err != nil {
		return unavailable("own events", rejected, err)
	}
	marks := left(file)
	o := &op{name: "own events", phase: otherPhase, rows: 1, run: func(t *txn) error { return t.takeOver(marks) }}
	if err := s.do(ctx, o, true); err != nil {
		return errors.Join(err, unmapFile(file))
	}
	clear(file)
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	s.running.file, s.running.free = file, make([]int, runningSlots)
	for slot := range s.running.free {
		s.running.free[slot] = slot
	}
	return nil
}

// fill makes a file at least size bytes long, and its blocks real: a write to
// the map of a hole would end the process when the disk is full.
func fill(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil || st.Size() >= size {
		return err
	}
	_, err = f.WriteAt(make([]byte, size-st.Size()), st.Size())
	return err
}

// close gives up the file and the lock.
func (r *running) close() error {
	r.owning.Lock()
	defer r.owning.Unlock()
	if r.lock == nil {
		return nil
	}
	r.mu.Lock()
	file := r.file
	r.file, r.free = nil, nil
	r.mu.Unlock()
	lock := r.lock
	r.lock, r.owned = nil, false
	return errors.Join(unmapFile(file), lock.Close())
}

// left returns the claims that are marked in a file.
func left(file []byte) map[claim]int {
	marks := map[claim]int{}
	for ; len(file) >= markSize; file = file[markSize:] {
		seq, token := binary.LittleEndian.Uint64(file), binary.LittleEndian.Uint64(file[8:])
		if m := (mark{ended: seq&endedBit != 0}); seq != 0 && token != 0 {
			marks[claim{int64(seq &^ endedBit), token}] = m.phase()
		}
	}
	return marks
}

// takeOver makes the claims of the process before this one due, and notes
// which of them it was working on, or had worked on.
func (t *txn) takeOver(marks map[claim]int) error {
	for c, phase := range marks {
		if _, err := t.w.lapsedRunning.Exec(phase, c.seq, int64(c.token)); err != nil {
			return fmt.Errorf("count what ended with its process: %w", err)
		}
	}
	if _, err := t.w.conn.ExecContext(context.Background(), `UPDATE ichido_events SET due = ? WHERE state = 1 AND due > ?`, t.now, t.now); err != nil {
		return fmt.Errorf("end leases of a process that is gone: %w", err)
	}
	t.wake = true
	return nil
}

// reap makes events due whose lease has ended. Where a handler of this process
// is still working on one, that is a death; where none has started, it was no
// attempt.
func (t *txn) reap() error {
	lapsed, err := t.lapsed()
	if err != nil {
		return fmt.Errorf("find ended leases: %w", err)
	}
	if len(lapsed) == 0 {
		return nil
	}
	for seq, token := range lapsed {
		c := claim{seq, token}
		phase := t.s.running.phase(c)
		if phase == 0 {
			continue
		}
		if _, err := t.w.lapsedRunning.Exec(phase, seq, int64(token)); err != nil {
			return fmt.Errorf("note a handler that started: %w", err)
		}
		if phase == phaseEnded {
			t.after = append(t.after, func() { t.s.running.forget(c) })
		}
	}
	if _, err := t.w.reap.Exec(t.now); err != nil {
		return fmt.Errorf("reap leases: %w", err)
	}
	return nil
}

// lapsed returns the claims whose lease has ended.
func (t *txn) lapsed() (map[int64]uint64, error) {
	rows, err := t.w.lapsed.Query(t.now)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var lapsed map[int64]uint64
	for rows.Next() {
		var seq, token int64
		if err := rows.Scan(&seq, &token); err != nil {
			return nil, err
		}
		if lapsed == nil {
			lapsed = map[int64]uint64{}
		}
		lapsed[seq] = uint64(token)
	}
	return lapsed, rows.Err()
}

// Mark implements [ichido.Queue].
func (s *Store) Mark(r *ichido.Record, running bool) {
	switch {
	case r.Token == 0:
	case running:
		s.running.start(claim{r.Seq, r.Token})
	default:
		s.running.end(claim{r.Seq, r.Token})
	}
}

// start notes that a handler works under a claim.
func (r *running) start(c claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[c]; m != nil {
		m.ended = false
		r.write(m.slot, c, 0)
		return
	}
	m := &mark{slot: -1}
	if last := len(r.free) - 1; last >= 0 {
		m.slot, r.free = r.free[last], r.free[:last]
	}
	if r.marks == nil {
		r.marks = map[claim]*mark{}
	}
	r.marks[c] = m
	r.write(m.slot, c, 0)
}

// end notes that it does not any more. The mark stays until the claim is
// settled: an attempt was made.
func (r *running) end(c claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.marks[c]; m != nil {
		m.ended = true
		r.write(m.slot, c, endedBit)
	}
}

// forget removes the mark of a claim that is settled or lost.
func (r *running) forget(c claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.marks[c]
	if m == nil {
		return
	}
	delete(r.marks, c)
	r.write(m.slot, claim{}, 0)
	if m.slot >= 0 {
		r.free = append(r.free, m.slot)
	}
}

// write writes a slot of the file. mu is held.
func (r *running) write(slot int, c claim, bits uint64) {
	if slot < 0 || r.file == nil {
		return
	}
	at := r.file[slot*markSize:]
	binary.LittleEndian.PutUint64(at[8:], c.token)
	binary.LittleEndian.PutUint64(at, uint64(c.seq)|bits)
}

// phase returns how far the handler of a claim has come; 0 where none started.
func (r *running) phase(c claim) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks[c].phase()
}
