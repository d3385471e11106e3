package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// refused fails unless opening is refused with words that name the cure.
func refused(t *testing.T, db *sql.DB, words ...string) {
	t.Helper()
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestOpenRefusesWhatCannotKeepEvents(t *testing.T) {
	for name, c := range map[string]struct {
		dsn   string
		words []string
	}{
		"in memory":         {":memory:", []string{"in memory", "open a file"}},
		"in shared memory":  {"file:x?mode=memory&cache=shared", []string{"in memory"}},
		"temporary":         {"", []string{"temporary"}},
		"exclusive locking": {newPath(t) + "?_pragma=locking_mode(EXCLUSIVE)", []string{"locking_mode"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, openDB(t, c.dsn), c.words...) })
	}
	db := openDB(t, newPath(t))
	db.SetMaxOpenConns(1)
	refused(t, db, "one connection", "SetMaxOpenConns")
}

// liar is a connection that pretends about a pragma.
type liar struct {
	*hookConn
	pragma, value string
}

func (l *liar) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, l.pragma) {
		query = "SELECT " + l.value
	}
	return l.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (l *liar) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return l.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

type lyingConnector struct {
	connector
	pragma, value string
}

func (c lyingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &liar{conn.(*hookConn), c.pragma, c.value}, nil
}

func TestOpenReadsBackWhatItSet(t *testing.T) {
	_, h := openHooked(t, newPath(t))
	for _, c := range []struct {
		pragma, value string
		words         []string
	}{
		{"PRAGMA synchronous", "1", []string{"synchronous is 1", "power cut"}},
		{"PRAGMA synchronous", "0", []string{"synchronous is 0"}},
		{"PRAGMA journal_mode", "'delete'", []string{`journal mode is "delete"`, "wal"}},
	} {
		db := sql.OpenDB(lyingConnector{connector{h, newPath(t)}, c.pragma, c.value})
		t.Cleanup(func() { db.Close() })
		refused(t, db, c.words...)
	}
}

// TestOpenCorrectsTheDataSourceName: what the name asks for holds for the
// reading connections; the writer has what durability needs.
func TestOpenCorrectsTheDataSourceName(t *testing.T) {
	for _, dsn := range []string{
		"?_pragma=synchronous(OFF)", "?_pragma=synchronous(NORMAL)", "?_pragma=journal_mode(DELETE)", "?_pragma=synchronous(EXTRA)", "",
	} {
		s, db := openPath(t, newPath(t)+dsn, sqlite.Options{})
		var level, mode string
		apply := s.Tx(func(ctx context.Context, tx *sql.Tx, _ *ichido.Event) error { // sees the writer's settings
			if err := tx.QueryRow("PRAGMA synchronous").Scan(&level); err != nil {
				return err
			}
			return tx.QueryRow("PRAGMA journal_mode").Scan(&mode)
		})
		r := storetest.NewRecord("github", "a", "a", storetest.NewClock().Now())
		if _, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute); err != nil {
			t.Fatal(err)
		}
		want := "2"
		if strings.Contains(dsn, "EXTRA") {
			want = "3"
		}
		if level != want || mode != "wal" {
			t.Errorf("%q: synchronous %s and journal mode %s", dsn, level, mode)
		}
		_ = db
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := newPath(t)
	s, db := openPath(t, path, sqlite.Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO ichido_schema (version, name) VALUES (99, 'future')"); err != nil {
		t.Fatal(err)
	}
	refused(t, db, "version 99", "run a newer program")
}

func TestMigrationsCanBeAppliedByOthers(t *testing.T) {
	if err := fstest.TestFS(sqlite.Migrations(), "0001_events_claims.sql"); err != nil {
		t.Error(err)
	}
}

// TestManyOpenAtOnce: several processes start together on a new database.
func TestManyOpenAtOnce(t *testing.T) {
	path := newPath(t)
	var wg sync.WaitGroup
	for i := range 6 {
		db := openDB(t, path)
		wg.Go(func() {
			s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			r := storetest.NewRecord("github", fmt.Sprint(i), "x", storetest.NewClock().Now())
			if v, err := s.Put(context.Background(), []ichido.Record{r}); err != nil || v[0] != ichido.Accepted {
				t.Errorf("put: %v, %v", v, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	s, db := openPath(t, path, sqlite.Options{})
	if got, err := s.List(context.Background(), ichido.Filter{}); err != nil || len(got) != 6 {
		t.Errorf("%d events, %v", len(got), err)
	}
	checkDB(t, db)
}

// TestItLivesInAUsersDatabase: the tables are beside others and touch none.
func TestItLivesInAUsersDatabase(t *testing.T) {
	path := newPath(t)
	db := openDB(t, path)
	if _, err := db.Exec("CREATE TABLE events (x); INSERT INTO events VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	openPath(t, path, sqlite.Options{})
	rows, err := db.Query("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'ichido_%' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil || name != "events" {
			t.Errorf("table %s, %v", name, err)
		}
	}
}

// TestCloseLeavesOneFile: after an orderly end the log is empty, so that the
// file alone is the database.
func TestCloseLeavesOneFile(t *testing.T) {
	path := newPath(t)
	s, db := openPath(t, path, sqlite.Options{})
	r := storetest.NewRecord("github", "a", "a", storetest.NewClock().Now())
	if _, err := s.Put(context.Background(), []ichido.Record{r}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		t.Errorf("the database: %v, %v", st, err)
	}
}
