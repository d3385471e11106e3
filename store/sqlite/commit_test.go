package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

func record(key string) ichido.Record {
	return storetest.NewRecord("github", key, "body of "+key, storetest.NewClock().Now())
}

// cause returns the word that says why a store was unavailable.
func cause(t *testing.T, err error) string {
	t.Helper()
	var e *ichido.Error
	if !errors.Is(err, ichido.ErrUnavailable) || !errors.As(err, &e) || e.Code != ichido.CodeUnavailable {
		t.Fatalf("%v is not an error of an unavailable store", err)
	}
	return e.Cause
}

// async puts one record and gives the answer later.
func async(ctx context.Context, s *sqlite.Store, r ichido.Record) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		v, err := s.Put(ctx, []ichido.Record{r})
		a := answer{err: err}
		if len(v) > 0 {
			a.v = v[0]
		}
		c <- a
	}()
	return c
}

type answer struct {
	v   ichido.Verdict
	err error
}

// wait returns when n operations wait for the committer.
func wait(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	for s.Waiting() < n {
		runtime.Gosched()
	}
}

func TestWaitingCallsShareACommit(t *testing.T) {
	db, h := openHooked(t, newPath(t))
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := h.count("COMMIT")
	release := s.Hold()
	var answers []<-chan answer
	for i := range 100 {
		answers = append(answers, async(context.Background(), s, record(fmt.Sprint(i/2)))) // each one twice
	}
	wait(t, s, 100)
	release()
	counts := map[ichido.Verdict]int{}
	for _, c := range answers {
		a := <-c
		if a.err != nil {
			t.Fatal(a.err)
		}
		counts[a.v]++
	}
	if counts[ichido.Accepted] != 50 || counts[ichido.Duplicate] != 50 {
		t.Errorf("verdicts %v", counts)
	}
	if n := h.count("COMMIT") - before; n != 1 {
		t.Errorf("%d commits for 100 calls that waited together", n)
	}
}

func TestBatchesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		o       sqlite.Options
		body    int
		commits int
	}{
		"rows":  {sqlite.Options{MaxBatch: 10}, 10, 3},
		"bytes": {sqlite.Options{MaxBatchBytes: 10_500}, 1000, 3},
	} {
		t.Run(name, func(t *testing.T) {
			db, h := openHooked(t, newPath(t))
			s, err := sqlite.Open(context.Background(), db, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			before := h.count("COMMIT")
			release := s.Hold()
			var answers []<-chan answer
			for i := range 30 {
				r := record(fmt.Sprint(i))
				r.Body, r.Header = make([]byte, c.body), nil
				answers = append(answers, async(context.Background(), s, r))
			}
			wait(t, s, 30)
			release()
			for _, c := range answers {
				if a := <-c; a.err != nil || a.v != ichido.Accepted {
					t.Fatal(a)
				}
			}
			if n := h.count("COMMIT") - before; n != c.commits {
				t.Errorf("%d commits, want %d", n, c.commits)
			}
		})
	}
}

// TestOneBadRecordCostsOneCall: what the database refuses about one record
// must not fail the requests that share its commit.
func TestOneBadRecordCostsOneCall(t *testing.T) {
	s, db := openPath(t, newPath(t), sqlite.Options{})
	_, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON ichido_events WHEN new.key = 'bad' BEGIN SELECT raise(ABORT, 'no'); END`)
	if err != nil {
		t.Fatal(err)
	}
	release := s.Hold()
	answers := map[string]<-chan answer{}
	for _, key := range []string{"a", "b", "bad", "c", "d"} {
		answers[key] = async(context.Background(), s, record(key))
	}
	wait(t, s, 5)
	release()
	for key, c := range answers {
		a := <-c
		if key == "bad" {
			if got := cause(t, a.err); got != "rejected" {
				t.Errorf("the bad one: cause %q", got)
			}
		} else if a.err != nil || a.v != ichido.Accepted {
			t.Errorf("%s: %v, %v", key, a.v, a.err)
		}
	}
	if s.Err() != nil {
		t.Errorf("the store is broken: %v", s.Err())
	}
}

func TestABodyLargerThanSQLiteTakesIsRefusedBefore(t *testing.T) {
	s, _ := openPath(t, newPath(t), sqlite.Options{})
	r := record("huge")
	r.Body = make([]byte, 1_000_000_000) // untouched pages take no memory
	_, err := s.Put(context.Background(), []ichido.Record{r})
	if err == nil || !strings.Contains(err.Error(), "more than SQLite stores") || errors.Is(err, ichido.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestAFullQueueIsRefused(t *testing.T) {
	s, _ := openPath(t, newPath(t), sqlite.Options{Queue: 2})
	release := s.Hold()
	first, second := async(context.Background(), s, record("a")), async(context.Background(), s, record("b"))
	wait(t, s, 2)
	_, err := s.Put(context.Background(), []ichido.Record{record("c")})
	if got := cause(t, err); got != "busy" {
		t.Errorf("cause %q, want busy", got)
	}
	release()
	for _, c := range []<-chan answer{first, second} {
		if a := <-c; a.err != nil || a.v != ichido.Accepted {
			t.Errorf("one that waited: %v, %v", a.v, a.err)
		}
	}
}

// TestAnotherWriter: a process that writes for long makes the store busy, not
// broken, and nothing of the refused call is stored.
func TestAnotherWriter(t *testing.T) {
	path := newPath(t)
	s, _ := openPath(t, path, sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	other, err := openDB(t, path).Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(context.Background(), []ichido.Record{record("a")})
	if got := cause(t, err); got != "locked" {
		t.Errorf("cause %q, want locked", got)
	}
	r := record("b")
	_, err = s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
		t.Error("the handler ran")
		return nil
	}).Accept(context.Background(), &r, new(ichido.Event), time.Minute)
	if got := cause(t, err); got != "locked" {
		t.Errorf("cause %q, want locked", got)
	}
	if list, err := s.List(context.Background(), ichido.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("reads beside another writer: %v, %v", list, err)
	}
	if _, err := other.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Put(context.Background(), []ichido.Record{record("a")}); err != nil || v[0] != ichido.Accepted {
		t.Errorf("after it: %v, %v", v, err)
	}
}

// own makes a store the one that works its database's events.
func own(t *testing.T, s *sqlite.Store) {
	t.Helper()
	if got, err := s.Claim(context.Background(), ichido.Want{}); err != nil || len(got) != 0 {
		t.Fatalf("first claim: %v, %v", got, err)
	}
}

// TestTwoStoresOnOneFile: two processes accept the same events, and one of
// them works them.
func TestTwoStoresOnOneFile(t *testing.T) {
	path := newPath(t)
	one, db := openPath(t, path, sqlite.Options{})
	two, _ := openPath(t, path, sqlite.Options{})
	own(t, one)
	if _, err := two.Claim(context.Background(), ichido.Want{}); !errors.Is(err, ichido.ErrUnavailable) || !strings.Contains(err.Error(), "another process works") {
		t.Errorf("the second worker got %v", err)
	}
	counts := map[ichido.Verdict]int{}
	worked := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range []*sqlite.Store{one, two} {
		for range 4 {
			wg.Go(func() {
				for i := range 50 {
					v, err := s.Put(context.Background(), []ichido.Record{record(fmt.Sprint(i))})
					if err != nil {
						t.Errorf("put: %v", err)
						return
					}
					got, err := one.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 5}, Lease: time.Hour})
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					mu.Lock()
					counts[v[0]]++
					for _, r := range got {
						worked[r.Key]++
						if string(r.Body) != "body of "+r.Key {
							t.Errorf("%s has the body %q", r.Key, r.Body)
						}
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if counts[ichido.Accepted] != 50 || counts[ichido.Duplicate] != 350 {
		t.Errorf("verdicts %v", counts)
	}
	for key, n := range worked {
		if n != 1 {
			t.Errorf("%s was claimed %d times", key, n)
		}
	}
	for len(worked) < 50 {
		got, err := one.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 50}, Lease: time.Hour})
		if err != nil || len(got) == 0 {
			t.Fatalf("claimed %d events of 50, then %v", len(worked), err)
		}
		for _, r := range got {
			worked[r.Key]++
		}
	}
	checkDB(t, db)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	own(t, two)
}

// TestACanceledPutMayStillBeReadingItsBody: nobody writes to the buffer, and
// the race detector agrees.
func TestACanceledPutMayStillBeReadingItsBody(t *testing.T) {
	path := newPath(t)
	s, _ := openPath(t, path, sqlite.Options{})
	release := s.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	r := record("a")
	want := bytes.Clone(r.Body)
	c := async(ctx, s, r)
	wait(t, s, 1)
	cancel()
	if a := <-c; !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", a.err)
	}
	release()
	v, err := s.Put(context.Background(), []ichido.Record{record("a")})
	if err != nil || v[0] != ichido.Accepted { // it was withdrawn before the committer took it
		t.Errorf("after it: %v, %v", v, err)
	}
	got, err := s.Get(context.Background(), r.ID())
	if err != nil || !bytes.Equal(got.Body, want) {
		t.Errorf("got %q, %v", got.Body, err)
	}
}

// TestARecordIsTheCallersWhenItsContextEnds: the commit goes on, and writes
// nothing into what the caller may use again. The race detector watches.
func TestARecordIsTheCallersWhenItsContextEnds(t *testing.T) {
	db, h := openHooked(t, newPath(t))
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan struct{})
	h.set(func(query string) (error, bool) {
		if query == "BEGIN IMMEDIATE" {
			cancel()
			<-left
		}
		return nil, false
	})
	records := []ichido.Record{record("a")}
	_, err = s.Put(ctx, records)
	close(left)
	if !errors.Is(err, context.Canceled) || records[0].Seq != 0 {
		t.Errorf("got %v, seq %d", err, records[0].Seq)
	}
	for range 100 { // while the commit goes on
		records[0].Seq++
		runtime.Gosched()
	}
	h.set(nil)
	if v, err := s.Put(context.Background(), []ichido.Record{record("a")}); err != nil || v[0] != ichido.Duplicate {
		t.Errorf("after it: %v, %v", v, err)
	}
	if records[0].Seq != 100 {
		t.Errorf("seq %d was written by the store", records[0].Seq)
	}
}

// TestAClaimThatWasCommittedIsDelivered: a worker that is told to stop while
// its claim is committed still gets the rows; else they would lapse, and the
// lapse would count as a death.
func TestAClaimThatWasCommittedIsDelivered(t *testing.T) {
	db, h := openHooked(t, newPath(t))
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	own(t, s)
	if _, err := s.Put(context.Background(), []ichido.Record{record("a")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.set(func(query string) (error, bool) {
		if query == "COMMIT" {
			cancel()
		}
		return nil, false
	})
	got, err := s.Claim(ctx, ichido.Want{Slots: map[string]int{"github": 1}, Lease: time.Hour})
	if err != nil || len(got) != 1 || string(got[0].Body) != "body of a" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestIdleClaimsDoNotWrite(t *testing.T) {
	db, h := openHooked(t, newPath(t))
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := ichido.Want{Slots: map[string]int{"github": 10}, Lease: time.Hour, Suspects: map[string]bool{"github": true}}
	own(t, s)
	before := h.count("BEGIN IMMEDIATE")
	for range 50 {
		if got, err := s.Claim(context.Background(), want); err != nil || len(got) != 0 {
			t.Fatalf("claimed %v, %v", got, err)
		}
	}
	if n := h.count("BEGIN IMMEDIATE") - before; n > 1 {
		t.Errorf("%d write transactions for 50 claims of nothing", n)
	}
}

// TestAMissingBodyCostsItsEvent: damage in one record must cost one record,
// loudly.
func TestAMissingBodyCostsItsEvent(t *testing.T) {
	path := newPath(t)
	first, db := openPath(t, path, sqlite.Options{})
	if _, err := first.Put(context.Background(), []ichido.Record{record("a"), record("b"), record("c")}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM ichido_bodies WHERE seq = 2"); err != nil {
		t.Fatal(err)
	}
	s, _ := openPath(t, path, sqlite.Options{})
	got, err := s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 10}, Lease: time.Hour})
	if err != nil || len(got) != 2 || got[0].Key != "a" || got[1].Key != "c" {
		t.Errorf("claimed %v, %v", got, err)
	}
	b := record("b")
	lost, err := s.Get(context.Background(), b.ID())
	if err != nil || lost.State != ichido.Dead || !strings.Contains(lost.Cause, "body_missing") {
		t.Errorf("the event without its body: %s, %q, %v", lost.State, lost.Cause, err)
	}
}

func TestCloseAnswersWhatWaits(t *testing.T) {
	s, _ := openPath(t, newPath(t), sqlite.Options{})
	release := s.Hold()
	var answers []<-chan answer
	for i := range 20 {
		answers = append(answers, async(context.Background(), s, record(fmt.Sprint(i))))
	}
	wait(t, s, 20)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	release()
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	for _, c := range answers {
		if a := <-c; a.err != nil || a.v != ichido.Accepted {
			t.Errorf("one that waited: %v, %v", a.v, a.err)
		}
	}
	_, err := s.Put(context.Background(), []ichido.Record{record("late")})
	if got := cause(t, err); got != "closed" {
		t.Errorf("cause %q, want closed", got)
	}
}

// TestAFailedCommitIsNotRunAgain: a driver's error may not even say what
// failed, and the commit may be on the disk all the same.
func TestAFailedCommitIsNotRunAgain(t *testing.T) {
	db, h := openHooked(t, newPath(t))
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	release := s.Hold()
	one, two := async(context.Background(), s, record("a")), async(context.Background(), s, record("b"))
	wait(t, s, 2)
	before := h.count("COMMIT")
	h.set(func(query string) (error, bool) {
		if query == "COMMIT" {
			return errors.New("no code, and it was written"), true
		}
		return nil, false
	})
	release()
	for _, c := range []<-chan answer{one, two} {
		if a := <-c; !errors.Is(a.err, ichido.ErrUnavailable) {
			t.Errorf("got %v, %v", a.v, a.err)
		}
	}
	h.set(nil)
	if n := h.count("COMMIT") - before; n != 1 {
		t.Errorf("%d commits", n)
	}
	if v, err := s.Put(context.Background(), []ichido.Record{record("a"), record("b")}); err != nil || v[0] != ichido.Duplicate || v[1] != ichido.Duplicate {
		t.Errorf("the retry: %v, %v", v, err)
	}
}
