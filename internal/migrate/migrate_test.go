package migrate

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"
)

func files(named ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(named); i += 2 {
		fsys[named[i]] = &fstest.MapFile{Data: []byte(named[i+1])}
	}
	return fsys
}

func TestLoadOrdersAndNames(t *testing.T) {
	got, err := Load(files("0002_more.sql", "two", "0001_first_table.sql", "one", "readme.txt", "no"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{{1, "first_table", "one"}, {2, "more", "two"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefusesWhatItCannotOrder(t *testing.T) {
	for name, fsys := range map[string]fstest.MapFS{
		"nothing":       files(),
		"gap":           files("0001_a.sql", "", "0003_c.sql", ""),
		"twice":         files("0001_a.sql", "", "01_b.sql", ""),
		"starts late":   files("0002_a.sql", ""),
		"no number":     files("first_a.sql", ""),
		"no title":      files("0001.sql", ""),
		"starts at nil": files("0000_a.sql", ""),
	} {
		if steps, err := Load(fsys); err == nil {
			t.Errorf("%s: loaded as %v", name, steps)
		}
	}
}

// sqliteTx runs migrations over one connection.
type sqliteTx struct{ *sql.Tx }

func (x sqliteTx) Exec(ctx context.Context, text string) error {
	_, err := x.ExecContext(ctx, text)
	return err
}

func (x sqliteTx) Int(ctx context.Context, text string) (n int, err error) {
	err = x.QueryRowContext(ctx, text).Scan(&n)
	return n, err
}

func open(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "m.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func up(db *sql.DB, steps []Step) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := Up(context.Background(), sqliteTx{tx}, "versions", steps); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func TestStepsAreAppliedOnceAndContinued(t *testing.T) {
	db := open(t)
	one := []Step{{1, "it's first", "CREATE TABLE a(x); INSERT INTO a VALUES (1)"}}
	two := append(one, Step{2, "second", "INSERT INTO a VALUES (2)"})
	for _, steps := range [][]Step{one, one, two, two} {
		if err := up(db, steps); err != nil {
			t.Fatal(err)
		}
	}
	var rows, version int
	if err := db.QueryRow("SELECT count(*), (SELECT max(version) FROM versions) FROM a").Scan(&rows, &version); err != nil {
		t.Fatal(err)
	}
	if rows != 2 || version != 2 {
		t.Errorf("%d rows at version %d, want 2 at 2", rows, version)
	}
}

func TestManyStartAtOnce(t *testing.T) {
	db := open(t)
	steps := []Step{{1, "first", "CREATE TABLE a(x)"}, {2, "second", "INSERT INTO a VALUES (2)"}}
	errs := make(chan error)
	for range 8 {
		go func() { errs <- up(db, steps) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	var rows int
	if err := db.QueryRow("SELECT count(*) FROM a").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("the second step ran %d times (%v)", rows, err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	db := open(t)
	steps := []Step{{1, "first", "CREATE TABLE a(x)"}, {2, "second", "SELECT 1"}}
	if err := up(db, steps); err != nil {
		t.Fatal(err)
	}
	err := up(db, steps[:1])
	if err == nil || !strings.Contains(err.Error(), "version 2 and this program knows 1") {
		t.Errorf("an older program got %v", err)
	}
}

func TestAFailingStepLeavesNothing(t *testing.T) {
	db := open(t)
	err := up(db, []Step{{1, "first", "CREATE TABLE a(x)"}, {2, "broken", "CREATE TABEL b(x)"}})
	if err == nil || !strings.Contains(err.Error(), "apply migration 2 (broken)") {
		t.Fatalf("got %v", err)
	}
	if _, err := db.Exec("SELECT * FROM a"); err == nil {
		t.Error("the first step stayed although the second failed")
	}
}
