package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// TestNoSpaceIsPassing: a full disk refuses, loses nothing, and is over when
// there is room again.
func TestNoSpaceIsPassing(t *testing.T) {
	clock := storetest.NewClock()
	s, db := openPath(t, newPath(t)+"?_pragma=max_page_count(400)", sqlite.Options{Clock: clock.Now})
	put := func(key string) error {
		r := record(key)
		r.Body = make([]byte, 10_000)
		v, err := s.Put(context.Background(), []ichido.Record{r})
		if err == nil && v[0] != ichido.Accepted {
			t.Fatalf("put %s: %v", key, v)
		}
		return err
	}
	for _, key := range []string{"d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10"} {
		if err := put(key); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 10}, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		errs, err := s.Settle(context.Background(), []ichido.Settlement{{Record: &got[i], State: ichido.Done}})
		if err != nil || errs[0] != nil {
			t.Fatalf("settle: %v, %v", errs, err)
		}
	}
	accepted := 0
	for ; err == nil; accepted++ {
		err = put(fmt.Sprint(accepted))
	}
	accepted-- // the last one
	if got := cause(t, err); got != "disk_full" || accepted < 50 || s.Err() != nil {
		t.Fatalf("accepted %d, then cause %q: %v; %v", accepted, got, err, s.Err())
	}
	if st, err := s.Stats(context.Background()); err != nil || st.Counts["github"][ichido.Pending] != accepted {
		t.Errorf("%v of %d events, %v", st.Counts, accepted, err)
	}
	clock.Advance(time.Second)
	if n, _, err := s.Purge(context.Background(), "github", clock.Now(), clock.Now()); err != nil || n != 10 {
		t.Fatalf("purge on a full disk: %d, %v", n, err)
	}
	if v, err := s.Put(context.Background(), []ichido.Record{record("new")}); err != nil || v[0] != ichido.Accepted {
		t.Errorf("after the purge: %v, %v", v, err)
	}
	checkDB(t, db)
}

// TestLittleSpaceIsKeptForSettling: below the minimum, new events are refused
// and old ones are still known, settled and purged.
func TestLittleSpaceIsKeptForSettling(t *testing.T) {
	clock := storetest.NewClock()
	s, _ := openPath(t, newPath(t), sqlite.Options{Clock: clock.Now, MinFree: 1000})
	put := func(want ichido.Verdict, key string) {
		t.Helper()
		if v, err := s.Put(context.Background(), []ichido.Record{record(key)}); err != nil || v[0] != want {
			t.Fatalf("put %s: %v, %v, want %v", key, v, err, want)
		}
	}
	put(ichido.Accepted, "a")
	if err := s.SetFreeSpace(context.Background(), 999); err != nil {
		t.Fatal(err)
	}
	put(ichido.Accepted, "b") // it looks no more than once a second
	clock.Advance(time.Second)
	put(ichido.Full, "c")
	put(ichido.Duplicate, "a")
	got, err := s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 1}, Lease: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatalf("claim: %v, %v", got, err)
	}
	errs, err := s.Settle(context.Background(), []ichido.Settlement{{Record: &got[0], State: ichido.Done}})
	if err != nil || errs[0] != nil {
		t.Errorf("settle: %v, %v", errs, err)
	}
	if err := s.SetFreeSpace(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	put(ichido.Accepted, "c")
}

// TestTheLogStaysSmall: the committer copies the log into the database as it
// grows, not only when SQLite does so for it.
func TestTheLogStaysSmall(t *testing.T) {
	path := newPath(t)
	s, _ := openPath(t, path, sqlite.Options{})
	for i := range 60 {
		records := make([]ichido.Record, 100)
		for j := range records {
			records[j] = record(fmt.Sprint(i, " ", j))
			records[j].Body = make([]byte, 1300)
		}
		if _, err := s.Put(context.Background(), records); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(path + "-wal")
	if err != nil || st.Size() > 8<<20 {
		t.Errorf("the log has %d bytes, %v", st.Size(), err)
	}
}
