package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// script is a life of several events, one call after the other. It notes what
// the store acknowledged and what it may or may not have done.
type script struct {
	t        *testing.T
	s        *sqlite.Store
	clock    *storetest.Clock
	accepted map[string]bool // by key
	done     map[string]bool
	unknown  map[string]bool // keys of calls that failed
	failed   int
	afterBad int  // calls acknowledged after a failure
	quiet    bool // the store itself may be confused
}

func (x *script) note(err error, what string, acknowledged map[string]bool, names ...string) {
	if err != nil {
		if !errors.Is(err, ichido.ErrUnavailable) {
			x.t.Errorf("%s: %v does not wrap ErrUnavailable", what, err)
		}
		x.failed++
		for _, name := range names {
			x.unknown[name] = true
		}
		return
	}
	if x.failed > 0 {
		x.afterBad++
	}
	for _, name := range names {
		acknowledged[name] = true
	}
}

func (x *script) put(names ...string) {
	var records []ichido.Record
	for _, name := range names {
		records = append(records, storetest.NewRecord("github", name, name, x.clock.Now()))
	}
	v, err := x.s.Put(context.Background(), records)
	for i := range v {
		if v[i] != ichido.Accepted && v[i] != ichido.Duplicate {
			x.t.Errorf("put %s: %v", names[i], v[i])
		}
	}
	x.note(err, "put", x.accepted, names...)
}

func (x *script) claim() []ichido.Record {
	got, err := x.s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 2}, Lease: time.Minute})
	x.note(err, "claim", map[string]bool{})
	for _, r := range got {
		if r.Body == nil || r.Token == 0 {
			x.t.Errorf("claimed %s without body or token", r.Key)
		}
	}
	return got
}

func (x *script) settle(got []ichido.Record) {
	var all []ichido.Settlement
	var names []string
	for i := range got {
		all = append(all, ichido.Settlement{Record: &got[i], State: ichido.Done, Outcome: ichido.Applied})
		names = append(names, got[i].Key)
	}
	errs, err := x.s.Settle(context.Background(), all)
	for i := range errs {
		if errs[i] != nil && !x.quiet {
			x.t.Errorf("settle %s: %v", names[i], errs[i])
		}
	}
	if len(all) > 0 {
		x.note(err, "settle", x.done, names...)
	}
}

func (x *script) run() {
	x.put("a", "b", "c")
	x.settle(x.claim())
	x.put("d")
	x.put("a", "e")
	apply := x.s.Tx(func(ctx context.Context, tx *sql.Tx, _ *ichido.Event) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('f')")
		return err
	})
	r := storetest.NewRecord("github", "f", "f", x.clock.Now())
	_, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute)
	if err == nil || errors.Is(err, ichido.ErrUnavailable) { // else the handler's own statement was hit
		x.note(err, "accept", x.done, "f")
	} else {
		x.failed++
	}
	x.settle(x.claim())
	x.clock.Advance(time.Second)
	n, err := x.s.Replay(context.Background(), ichido.Filter{Outcome: "none"}, false)
	if n != 0 {
		x.t.Errorf("replayed %d", n)
	}
	x.note(err, "replay", map[string]bool{})
	x.put("g", "h")
}

// verify opens what a crash would leave, compares it with what was
// acknowledged, and returns what is wrong. certain says that a call that
// failed did nothing.
func (x *script) verify(path string, certain bool) (wrong []string) {
	s, db := openPath(x.t, copyFiles(x.t, path), sqlite.Options{Clock: x.clock.Now})
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	stored := map[string]ichido.State{}
	got, err := s.List(context.Background(), ichido.Filter{Limit: 100})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, r := range got {
		stored[r.Key] = r.State
		if !x.accepted[r.Key] && !x.done[r.Key] && (certain || !x.unknown[r.Key]) {
			complain("%s is stored, and no call says so", r.Key)
		}
		if r.State == ichido.Done && !x.done[r.Key] && (certain || !x.unknown[r.Key]) {
			complain("%s is done, and no call says so", r.Key)
		}
	}
	for key := range x.accepted {
		if stored[key] == "" {
			complain("%s was acknowledged and is lost", key)
		}
	}
	for key := range x.done {
		if stored[key] != ichido.Done {
			complain("%s was settled and is %q", key, stored[key])
		}
	}
	if effects := readEffects(x.t, db); (len(effects) == 1) != (stored["f"] == ichido.Done) || len(effects) > 1 {
		complain("effects %v, and the event is %q", effects, stored["f"])
	}
	checkDB(x.t, db)
	return wrong
}

// TestFailingStatements makes the k-th statement fail, for every k.
func TestFailingStatements(t *testing.T) {
	for _, mode := range []struct {
		name            string
		err             fault
		sticky, applied bool
		commits         bool // only commits fail
	}{
		{name: "full once", err: noSpace},
		{name: "full for good", err: noSpace, sticky: true},
		{name: "I/O error once", err: ioError},
		{name: "I/O error for good", err: ioError, sticky: true},
		{name: "flush fails once", err: syncFail, commits: true},
		{name: "flush fails although it was written", err: syncFail, commits: true, applied: true},
		{name: "full although it was written", err: noSpace, commits: true, applied: true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			for k := 1; ; k++ {
				if !failKth(t, k, mode.err, mode.sticky, mode.applied, mode.commits) {
					if k < 5 {
						t.Errorf("only %d statements could fail", k-1)
					}
					t.Logf("failed each of %d statements", k-1)
					return
				}
				if t.Failed() {
					t.Fatalf("at statement %d", k)
				}
			}
		})
	}
}

// failKth runs the script with its k-th statement failing, and reports
// whether there is such a statement.
func failKth(t *testing.T, k int, err fault, sticky, applied, commits bool) bool {
	x, path, h := newScript(t)
	n, hit := 0, false
	h.set(func(query string) (error, bool) {
		if strings.HasPrefix(query, "ROLLBACK") || strings.HasPrefix(query, "PRAGMA") || commits && query != "COMMIT" {
			return nil, false
		}
		n++
		if n == k || sticky && n > k {
			hit = true
			return err, applied
		}
		return nil, false
	})
	x.run()
	h.set(nil)
	if !hit {
		return false
	}
	if x.failed == 0 {
		t.Error("a statement failed and no call says so")
	}
	broke := x.s.Err() != nil
	if broke && x.afterBad > 0 {
		t.Error("a call was acknowledged after the store had broken")
	}
	if commits && broke != (err != noSpace) || broke && err == noSpace {
		t.Errorf("after %v the store's state is %v", err, x.s.Err())
	}
	for _, wrong := range x.verify(path, !applied) {
		t.Error(wrong)
	}
	return true
}

// newScript opens a store through hooks for a script.
func newScript(t *testing.T) (x *script, path string, h *hooks) {
	path = newPath(t)
	db, h := openHooked(t, path)
	clock := storetest.NewClock()
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := db.Exec("CREATE TABLE effects (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	return &script{t: t, s: s, clock: clock, accepted: map[string]bool{}, done: map[string]bool{}, unknown: map[string]bool{}}, path, h
}

// TestALostCommitIsSeen is the negative control: a driver that says that a
// commit succeeded, and rolled back, must be caught by the same script.
func TestALostCommitIsSeen(t *testing.T) {
	for _, k := range []int{1, 4} { // a put, and a settle
		x, path, h := newScript(t)
		n := 0
		h.lie = func(query string) bool {
			if query == "COMMIT" {
				n++
			}
			return query == "COMMIT" && n == k
		}
		x.quiet = true
		x.run()
		if wrong := x.verify(path, true); len(wrong) == 0 {
			t.Errorf("commit %d was lost and nothing is wrong", k)
		} else {
			t.Logf("commit %d: %s", k, wrong[0])
		}
	}
}

// TestABrokenStoreStaysBroken: after a failed flush the kernel may have
// dropped what was not written, and the next flush says nothing about it.
func TestABrokenStoreStaysBroken(t *testing.T) {
	x, path, h := newScript(t)
	x.put("a")
	h.set(func(query string) (error, bool) {
		if query == "COMMIT" {
			return syncFail, false
		}
		return nil, false
	})
	x.put("b")
	h.set(nil)
	select {
	case <-x.s.Failed():
	default:
		t.Error("Failed is not closed after a failed flush")
	}
	begun := h.count("BEGIN IMMEDIATE")
	x.put("c")
	got := x.claim()
	_, perr := x.s.Replay(context.Background(), ichido.Filter{}, false)
	_, _, uerr := x.s.Purge(context.Background(), "github", x.clock.Now(), x.clock.Now())
	r := storetest.NewRecord("github", "f", "f", x.clock.Now())
	apply := x.s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
		t.Error("the handler ran")
		return nil
	})
	_, aerr := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute)
	if x.afterBad != 0 || len(got) != 0 || !errors.Is(perr, ichido.ErrUnavailable) || !errors.Is(uerr, ichido.ErrUnavailable) || !errors.Is(aerr, ichido.ErrUnavailable) {
		t.Errorf("a broken store acknowledged: %d calls, %v, %v, %v", x.afterBad, perr, uerr, aerr)
	}
	if n := h.count("BEGIN IMMEDIATE"); n != begun {
		t.Errorf("a broken store began %d transactions", n-begun)
	}
	if e := new(ichido.Error); !errors.As(perr, &e) || e.Cause != "broken" {
		t.Errorf("the error is %v, want the cause broken", perr)
	}
	if list, err := x.s.List(context.Background(), ichido.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("reads of a broken store: %v, %v", list, err)
	}
	for _, wrong := range x.verify(path, true) {
		t.Error(wrong)
	}
}

// TestAnEventWithoutItsBodyCostsNoOther: it becomes a dead letter, and where
// that fails the events beside it are worked all the same.
func TestAnEventWithoutItsBodyCostsNoOther(t *testing.T) {
	for _, fails := range []bool{false, true} {
		x, path, _ := newScript(t)
		x.put("whole", "lost")
		// Another store has none of the bodies in memory.
		db, h := openHooked(t, copyFiles(t, path))
		if _, err := db.Exec("DELETE FROM ichido_bodies WHERE seq = 2"); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(context.Background(), db, sqlite.Options{Clock: x.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		h.set(func(query string) (error, bool) {
			if fails && strings.Contains(query, "SET state = ?, outcome") {
				return noSpace, false
			}
			return nil, false
		})
		claim := func() ([]ichido.Record, error) {
			return s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 2}, Lease: time.Minute})
		}
		got, err := claim()
		if err != nil || len(got) != 1 || got[0].Key != "whole" || string(got[0].Body) != "whole" {
			t.Fatalf("claimed %v, %v; want the one that is whole", got, err)
		}
		if fails {
			x.clock.Advance(30 * time.Second)
			if _, err := s.Extend(context.Background(), []*ichido.Record{&got[0]}, time.Hour); err != nil {
				t.Fatal(err)
			}
			x.clock.Advance(30 * time.Second)
			if got, err := claim(); len(got) != 0 || !errors.Is(err, ichido.ErrUnavailable) {
				t.Errorf("claimed %v, %v; want the store's error where nothing is whole", got, err)
			}
			h.set(nil)
			x.clock.Advance(time.Minute)
			if got, err := claim(); len(got) != 0 || err != nil {
				t.Errorf("claimed %v, %v, want none", got, err)
			}
		}
		lost, err := s.List(context.Background(), ichido.Filter{Key: "lost"})
		if err != nil || len(lost) != 1 || lost[0].State != ichido.Dead || !strings.HasPrefix(lost[0].Cause, "body_missing") {
			t.Errorf("the one without a body: %v, %v", lost, err)
		}
	}
}
