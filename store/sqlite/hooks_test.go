package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
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
