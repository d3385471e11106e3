package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// watched opens a store that has all of its files open.
func watched(t *testing.T) (s *sqlite.Store, db *sql.DB, path string, clock *storetest.Clock) {
	t.Helper()
	path, clock = newPath(t), storetest.NewClock()
	s, db = openPath(t, path, sqlite.Options{Clock: clock.Now, MinFree: -1})
	if _, err := s.Claims(context.Background()); err != nil {
		t.Fatal(err)
	}
	put(t, s, record("a"))
	claimOne(t, s)
	return s, db, path, clock
}

// TestAFileThatIsGoneFailsTheStore: what is written to it is found by nobody.
func TestAFileThatIsGoneFailsTheStore(t *testing.T) {
	for how, do := range map[string]func(path string) error{
		"removed or renamed": os.Remove,
		"or renamed":         func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
	} {
		for _, suffix := range []string{"", "-wal", "-shm", "-worker.lock", "-claims.lock"} {
			s, _, path, clock := watched(t)
			if err := do(path + suffix); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Second - time.Millisecond)
			put(t, s, record("b")) // it is not looked at all the time
			clock.Advance(time.Millisecond)
			calls := map[string]error{}
			_, calls["put"] = s.Put(context.Background(), []ichido.Record{record("c")})
			r := record("d")
			_, calls["accept"] = s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
				t.Errorf("%s %s: a handler ran", suffix, how)
				return nil
			}).Accept(context.Background(), &r, new(ichido.Event), time.Minute)
			for call, err := range calls {
				if !errors.Is(err, ichido.ErrUnavailable) || cause(t, err) != "broken" {
					t.Errorf("%s when %q is %s: %v", call, suffix, how, err)
				}
			}
			select {
			case <-s.Failed():
			default:
				t.Fatalf("the store has not failed when %q is %s", suffix, how)
			}
			for _, words := range []string{path + suffix + " was ", how, "put back"} {
				if !strings.Contains(s.Err().Error(), words) {
					t.Errorf("%q does not say %q", s.Err(), words)
				}
			}
		}
	}
}

// TestAHandlersTransactionLooksAtTheFiles, too: it is no part of a group.
func TestAHandlersTransactionLooksAtTheFiles(t *testing.T) {
	s, _, path, clock := watched(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Second)
	r := record("b")
	_, err := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
		t.Error("the handler ran")
		return nil
	}).Accept(context.Background(), &r, new(ichido.Event), time.Minute)
	if cause(t, err) != "broken" || s.Err() == nil {
		t.Errorf("got %v; the store: %v", err, s.Err())
	}
}

// TestFilesThatStayFailNothing, whatever SQLite does with them.
func TestFilesThatStayFailNothing(t *testing.T) {
	s, db, path, clock := watched(t)
	for _, text := range []string{"PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA optimize"} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
		put(t, s, record(text+clock.Now().String()))
	}
	db.SetMaxIdleConns(0) // the pool's other connections are closed
	clock.Advance(time.Second)
	put(t, s, record("b"))
	other, otherDB := openPath(t, path, sqlite.Options{})
	put(t, other, record("other"))
	if err := errors.Join(other.Close(), otherDB.Close()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(-time.Hour)
	put(t, s, record("c"))
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}
