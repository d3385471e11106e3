package faultdriver

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
)

// openWith opens a database through the driver with a plan. Names of drivers
// are global, so each test has its own.
func openWith(t *testing.T, p Plan) *sql.DB {
	t.Helper()
	plain, err := sql.Open("sqlite", "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	name := "fault-" + t.Name()
	sql.Register(name, New(plain.Driver(), p))
	db, err := sql.Open(name, "file:"+filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func mustExec(t *testing.T, c *sql.Conn, text string) {
	t.Helper()
	if _, err := c.ExecContext(context.Background(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func connOf(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func count(t *testing.T, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, text string,
) (n int) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), text).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func TestParseReadsEveryFaultAndRefusesOthers(t *testing.T) {
	p, err := Parse("ack-before-commit,no-unique-key,synchronous=off,kill:after-commit+claim:37")
	if err != nil || !p.AckBeforeCommit || !p.NoUniqueKey || p.Synchronous != "off" || p.Point != "after-commit+claim" || p.Hit != 37 {
		t.Errorf("Parse returned %+v, %v", p, err)
	}
	for _, wrong := range []string{"x", "kill:nowhere:1", "kill:after-commit", "kill:after-commit:0", "kill:after-commit:x", "synchronous=full"} {
		if _, err := Parse(wrong); err == nil {
			t.Errorf("Parse(%q) returned no error", wrong)
		}
	}
}

func TestTheProcessEndsAtThePlannedHitAndNotBefore(t *testing.T) {
	reached := 0
	var done []string
	db := openWith(t, Plan{Point: "before-commit", Hit: 2, Die: func() { reached = len(done) }})
	c := connOf(t, db)
	mustExec(t, c, "CREATE TABLE ledger (x)")
	for _, text := range []string{"BEGIN IMMEDIATE", "INSERT INTO ledger VALUES (1)", "COMMIT", "BEGIN IMMEDIATE", "INSERT INTO ledger VALUES (2)", "COMMIT"} {
		mustExec(t, c, text)
		done = append(done, text)
	}
	if reached != 5 {
		t.Errorf("the process ended after %d statements, want before the sixth", reached)
	}
}

func TestACommitIsAPointOfWhatItsTransactionDid(t *testing.T) {
	hits := 0
	db := openWith(t, Plan{Point: "after-commit+effect", Hit: 1, Die: func() { hits++ }})
	c := connOf(t, db)
	mustExec(t, c, "CREATE TABLE ledger (x)")
	mustExec(t, c, "BEGIN IMMEDIATE")
	mustExec(t, c, "COMMIT")
	if hits != 0 {
		t.Error("a commit without an effect ended the process")
	}
	mustExec(t, c, "BEGIN IMMEDIATE")
	mustExec(t, c, "UPDATE ledger SET x = 1")
	mustExec(t, c, "COMMIT")
	if hits != 1 {
		t.Errorf("a commit with an effect ended the process %d times", hits)
	}
}

func TestAckBeforeCommitCommitsOnlyWhenTheConnectionIsUsedAgain(t *testing.T) {
	db := openWith(t, Plan{AckBeforeCommit: true})
	c := connOf(t, db)
	mustExec(t, c, "PRAGMA journal_mode = WAL")
	mustExec(t, c, "CREATE TABLE ledger (x)")
	mustExec(t, c, "BEGIN IMMEDIATE")
	mustExec(t, c, "INSERT INTO ledger VALUES (1)")
	mustExec(t, c, "COMMIT")
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 0 {
		t.Errorf("another connection sees %d rows before the commit", n)
	}
	mustExec(t, c, "BEGIN IMMEDIATE")
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != 1 {
		t.Errorf("another connection sees %d rows after the commit", n)
	}
	mustExec(t, c, "ROLLBACK")
}

func TestWithoutTheUniqueKeyAnEventIsStoredTwice(t *testing.T) {
	for _, plan := range []Plan{{}, {NoUniqueKey: true}} {
		name := "kept"
		if plan.NoUniqueKey {
			name = "lost"
		}
		t.Run(name, func(t *testing.T) {
			db := openWith(t, plan)
			s, err := sqlite.Open(context.Background(), db, sqlite.Options{MinFree: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r := ichido.Record{Hash: [16]byte{1}, Source: "s", Key: "k", Body: []byte("b")}
			verdicts, err := s.Put(context.Background(), []ichido.Record{r, r})
			want := []ichido.Verdict{ichido.Accepted, ichido.Duplicate}
			if plan.NoUniqueKey {
				want[1] = ichido.Accepted
			}
			if err != nil || !slices.Equal(verdicts, want) {
				t.Errorf("Put returned %v, %v, want %v", verdicts, err, want)
			}
		})
	}
}

func TestASynchronousLevelIsChangedAndTheReadBackIsALie(t *testing.T) {
	db := openWith(t, Plan{Synchronous: "off"})
	c := connOf(t, db)
	mustExec(t, c, "PRAGMA synchronous = FULL")
	if n := count(t, c, "PRAGMA synchronous"); n != full {
		t.Errorf("the read-back says %d, want the lie %d", n, full)
	}
	if n := count(t, c, "SELECT synchronous FROM pragma_synchronous"); n != 0 {
		t.Errorf("the level is %d, want 0", n)
	}
}

// TestEveryPointIsAStatementOfTheStore walks an event through its life: a
// point that no statement reaches would never be tested.
func TestEveryPointIsAStatementOfTheStore(t *testing.T) {
	seen := map[kind]bool{}
	db := openWith(t, Plan{})
	f := db.Driver().(*faulty)
	f.seen = func(k kind) { seen[k] = true }
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{MinFree: -1, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	walk(t, s, func(d time.Duration) { ahead.Add(int64(d)) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := connOf(t, db)
	mustExec(t, c, "CREATE TABLE ledger (x)")
	mustExec(t, c, "INSERT INTO ledger VALUES (1)")
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "ROLLBACK")
	for _, p := range Points() {
		k := kind(strings.TrimPrefix(strings.TrimPrefix(p, "before-"), "after-"))
		if group, ok := strings.CutPrefix(string(k), "commit+"); ok {
			k = kind(group)
		}
		if !seen[k] {
			t.Errorf("no statement is a %s", k)
		}
	}
}

// walk takes events through every statement of the store.
func walk(t *testing.T, s *sqlite.Store, pass func(time.Duration)) {
	t.Helper()
	ctx := context.Background()
	kept := ichido.Record{Hash: [16]byte{1}, Source: "s", Key: "q", State: ichido.Quarantined, Body: []byte("q")}
	event := ichido.Record{Hash: [16]byte{2}, Source: "s", Key: "e", Body: []byte("e")}
	if _, err := s.Put(ctx, []ichido.Record{kept, event, event}); err != nil {
		t.Fatal(err)
	}
	want := ichido.Want{Slots: map[string]int{"s": 8}, Lease: time.Minute, Suspects: map[string]bool{"s": true}}
	if claimed, err := s.Claim(ctx, want); err != nil || len(claimed) != 1 {
		t.Fatalf("Claim returned %d events, %v", len(claimed), err)
	}
	pass(2 * time.Minute) // the lease lapses
	claimed, err := s.Claim(ctx, want)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("Claim returned %d events, %v", len(claimed), err)
	}
	if _, err := s.Extend(ctx, []*ichido.Record{&claimed[0]}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(ctx, []ichido.Settlement{{Record: &claimed[0], State: ichido.Done, Outcome: ichido.Applied}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Purge(ctx, "s", time.Now().Add(time.Hour), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}
