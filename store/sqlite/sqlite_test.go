package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB, s storetest.Setup) *storetest.Store {
		return openStore(t, newPath(t), s)
	})
}

// newPath returns a path for a new database.
func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ichido.db") }

func openDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// openPath opens a store that is closed when the test ends.
func openPath(t testing.TB, path string, o sqlite.Options) (*sqlite.Store, *sql.DB) {
	t.Helper()
	db := openDB(t, path)
	s, err := sqlite.Open(context.Background(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, db
}

// openStore opens a store with all that the contract asks about.
func openStore(t testing.TB, path string, setup storetest.Setup) *storetest.Store {
	t.Helper()
	s, db := openPath(t, path, sqlite.Options{
		Clock: setup.Clock, Capacity: setup.Capacity, MinFree: -1,
		ClaimCapacity: setup.ClaimCapacity, ClaimRunning: setup.ClaimRunning, ClaimRetention: setup.ClaimRetention,
	})
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS effects (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claims(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return &storetest.Store{
		Queue: s, Archive: s, Claims: claims,
		Apply: func(h storetest.Handler) ichido.Applier {
			return s.Tx(func(ctx context.Context, tx *sql.Tx, _ *ichido.Event) error {
				return h(ctx, func(name string) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
					return err
				})
			})
		},
		Effects: func(t testing.TB) (names []string) { return readEffects(t, db) },
		Crash:   func(t testing.TB) *storetest.Store { return openStore(t, copyFiles(t, path), setup) },
		Check:   func(t testing.TB) { checkDB(t, db) },
	}
}

func readEffects(t testing.TB, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.Query("SELECT name FROM effects ORDER BY rowid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// copyFiles copies a database as a crash of its process would leave it: the
// file and its log, without what only memory had.
func copyFiles(t testing.TB, path string) string {
	t.Helper()
	copied := newPath(t)
	for _, suffix := range []string{"", "-wal", "-worker.lock"} {
		from, err := os.Open(path + suffix)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		to, err := os.Create(copied + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(to, from); err != nil {
			t.Fatal(err)
		}
		from.Close()
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// checkDB fails the test when the database is not sound in itself.
func checkDB(t testing.TB, db *sql.DB) {
	t.Helper()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity_check: %s, %v", verdict, err)
	}
	for _, rule := range []struct{ name, count string }{
		{"bodies without an event", "FROM ichido_bodies WHERE seq NOT IN (SELECT seq FROM ichido_events)"},
		{"events without a body", "FROM ichido_events WHERE purged = 0 AND seq NOT IN (SELECT seq FROM ichido_bodies)"},
		{"purged events with a body", "FROM ichido_events WHERE purged = 1 AND seq IN (SELECT seq FROM ichido_bodies)"},
		{"events in an unknown state", "FROM ichido_events WHERE state NOT BETWEEN 0 AND 4"},
		{"claimed events without a token", "FROM ichido_events WHERE state = 1 AND token = 0"},
		{"settled events with a token", "FROM ichido_events WHERE state > 1 AND (token <> 0 OR started <> 0)"},
		{"negative counts", "FROM ichido_events WHERE attempts < 0 OR deaths < 0"},
		{"bodies of another size", "FROM ichido_events JOIN ichido_bodies USING (seq) WHERE size <> length(body)"},
	} {
		var n int
		if err := db.QueryRow("SELECT count(*) " + rule.count).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s (%v)", n, rule.name, err)
		}
	}
	if t.Failed() {
		t.Log(fmt.Sprint("the database is ", db.Stats()))
	}
}

// put stores records that are new.
func put(t testing.TB, s *sqlite.Store, records ...ichido.Record) {
	t.Helper()
	v, err := s.Put(context.Background(), records)
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	for i := range v {
		if v[i] != ichido.Accepted {
			t.Fatalf("put %s: %v", records[i].Key, v[i])
		}
	}
}

// claimOne claims the one event that is due.
func claimOne(t testing.TB, s *sqlite.Store) *ichido.Record {
	t.Helper()
	got, err := s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 10}, Lease: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatalf("claimed %d events, want 1: %v", len(got), err)
	}
	return &got[0]
}
