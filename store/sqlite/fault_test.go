package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// fault is an error of the database with a result code of SQLite.
type fault int

const (
	ioError  fault = 10 | 3<<8 // SQLITE_IOERR_WRITE
	syncFail fault = 10 | 4<<8 // SQLITE_IOERR_FSYNC
	noSpace  fault = 13        // SQLITE_FULL
)

func (f fault) Error() string { return fmt.Sprintf("injected fault %d", int(f)) }
func (f fault) Code() int     { return int(f) }

// stuck is a fault that leaves a transaction open.
type stuck struct{ fault }

// hooks is a driver that asks before each statement. It stands before the
// real one, so that a test can make any statement fail.
type hooks struct {
	driver.Driver

	mu     sync.Mutex // guards everything below
	before func(query string) (err error, applied bool)
	lie    func(query string) bool // roll back, and say that it was done
	ran    map[string]int          // how often each statement ran
	writer map[string]bool         // whether each statement was prepared on a connection that writes
}

func (h *hooks) ask(query string) (error, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran[query]++
	if h.before == nil {
		return nil, false
	}
	return h.before(query)
}

func (h *hooks) count(query string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ran[query]
}

func (h *hooks) set(before func(query string) (error, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = before
}

type hookConn struct {
	driver.Conn
	h      *hooks
	writes bool
}

type hookStmt struct {
	driver.Stmt
	conn  driver.Conn
	h     *hooks
	query string
}

type hookTx struct {
	driver.Tx
	h *hooks
}

// openHooked opens a database through hooks.
func openHooked(t testing.TB, path string) (*sql.DB, *hooks) {
	t.Helper()
	h := &hooks{Driver: openDB(t, "").Driver(), ran: map[string]int{}, writer: map[string]bool{}}
	db := sql.OpenDB(connector{h, path})
	t.Cleanup(func() { db.Close() })
	return db, h
}

type connector struct {
	h    *hooks
	path string
}

func (c connector) Driver() driver.Driver { return c.h }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.h.Driver.Open(c.path)
	if err != nil {
		return nil, err
	}
	return &hookConn{Conn: conn, h: c.h}, nil
}

func (c *hookConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	c.h.prepared(c, query)
	return &hookStmt{stmt, c.Conn, c.h, query}, err
}

func (h *hooks) prepared(c *hookConn, query string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.writes = c.writes || query == "BEGIN IMMEDIATE"
	h.writer[query] = h.writer[query] || c.writes
}

func (c *hookConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err, _ := c.h.ask("BeginTx"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return &hookTx{tx, c.h}, err
}

func (t *hookTx) Commit() error {
	err, applied := t.h.ask("COMMIT")
	if errors.As(err, new(stuck)) {
		return err
	}
	if err != nil && !applied {
		return errors.Join(err, t.Tx.Rollback())
	}
	return errors.Join(err, t.Tx.Commit())
}

func (t *hookTx) Rollback() error {
	if err, _ := t.h.ask("ROLLBACK of a handler's transaction"); err != nil {
		return err
	}
	return t.Tx.Rollback()
}

func (s *hookStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	err, applied := s.h.ask(s.query)
	if err != nil && !applied {
		return nil, err
	}
	if s.h.lie != nil && s.h.lie(s.query) {
		_, err := s.conn.(driver.ExecerContext).ExecContext(ctx, "ROLLBACK", nil)
		return driver.RowsAffected(0), err
	}
	res, rerr := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if err != nil {
		return nil, err
	}
	return res, rerr
}

func (s *hookStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err, _ := s.h.ask(s.query); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

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
