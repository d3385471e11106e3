package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// New returns d with the faults of a plan. All its connections share the
// count of hits. d's connections and statements must take contexts.
func New(d driver.Driver, p Plan) driver.Driver { return &faulty{d: d, plan: p} }

type faulty struct {
	d    driver.Driver
	plan Plan
	hits atomic.Int64
	seen func(kind) // in tests: called with what every statement does
}

// Open opens a connection.
func (f *faulty) Open(name string) (driver.Conn, error) {
	inner, err := f.d.Open(name)
	if err != nil {
		return nil, err
	}
	c := &conn{f: f, Conn: inner}
	if f.plan.Synchronous == "" {
		return c, nil
	}
	if _, err := c.real(context.Background(), "PRAGMA synchronous = "+f.plan.Synchronous); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return c, nil
}

// reach counts a point, and ends the process if it is the planned one.
func (f *faulty) reach(when string, k kind, did map[kind]bool) {
	p := &f.plan
	if p.Point == "" || k == other || !strings.HasPrefix(p.Point, when) {
		return
	}
	name := when + string(k)
	if k == commit {
		if group, qualified := strings.CutPrefix(p.Point, name+"+"); qualified && did[kind(group)] {
			name = p.Point
		}
	}
	if name == p.Point && f.hits.Add(1) == p.Hit {
		p.die()
	}
}

// conn is one connection; like every connection it is used by one goroutine
// at a time.
type conn struct {
	driver.Conn
	f    *faulty
	did  map[kind]bool // what the open transaction did
	owed func() error  // a commit that was reported and not done
}

// run does one statement between its two points.
func (c *conn) run(k kind, do func() error) error {
	if err := c.pay(); err != nil {
		return err
	}
	if c.f.seen != nil {
		c.f.seen(k)
	}
	c.f.reach("before-", k, c.did)
	if k == commit && c.f.plan.AckBeforeCommit {
		c.owed = do
	} else if err := do(); err != nil {
		return err
	}
	if k == begin {
		c.did = map[kind]bool{}
	}
	if c.did != nil {
		c.did[k] = true
	}
	c.f.reach("after-", k, c.did)
	if k == commit || k == rollback {
		c.did = nil
	}
	return nil
}

// pay does the commit that is owed.
func (c *conn) pay() error {
	if c.owed == nil {
		return nil
	}
	do := c.owed
	c.owed = nil
	return do()
}

// real runs a statement without a point.
func (c *conn) real(ctx context.Context, text string) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, nil)
}

// PrepareContext prepares a statement, as the plan rewrites it.
func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	inner, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, c.f.plan.rewrite(text))
	if err != nil {
		return nil, err
	}
	return &stmt{Stmt: inner, c: c, kind: kindOf(text)}, nil
}

// ExecContext executes a statement, as the plan rewrites it.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (res driver.Result, err error) {
	res = driver.RowsAffected(0)
	err = c.run(kindOf(text), func() (err error) {
		res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, c.f.plan.rewrite(text), args)
		return err
	})
	return res, err
}

// QueryContext runs a query, or answers it with a lie.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if lie := c.f.plan.lie(text); lie != nil {
		return lie, nil
	}
	inner, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip // database/sql prepares it
	}
	err = c.run(kindOf(text), func() (err error) {
		rows, err = inner.QueryContext(ctx, c.f.plan.rewrite(text), args)
		return err
	})
	return rows, err
}

// CheckNamedValue has the driver convert an argument, where it does that.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if inner, ok := c.Conn.(driver.NamedValueChecker); ok {
		return inner.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// BeginTx begins a transaction.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.run(begin, func() (err error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &transaction{tx, c}, nil
}

// ResetSession is called before a connection is used again.
func (c *conn) ResetSession(ctx context.Context) error {
	if inner, ok := c.Conn.(driver.SessionResetter); ok {
		return inner.ResetSession(ctx)
	}
	return nil
}

// IsValid reports whether the connection may be used again.
func (c *conn) IsValid() bool {
	inner, ok := c.Conn.(driver.Validator)
	return !ok || inner.IsValid()
}

// Close closes the connection.
func (c *conn) Close() error { return errors.Join(c.pay(), c.Conn.Close()) }

type transaction struct {
	driver.Tx
	c *conn
}

func (t *transaction) Commit() error   { return t.c.run(commit, t.Tx.Commit) }
func (t *transaction) Rollback() error { return t.c.run(rollback, t.Tx.Rollback) }

type stmt struct {
	driver.Stmt
	c    *conn
	kind kind
}

// ExecContext executes the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	res = driver.RowsAffected(0)
	err = s.c.run(s.kind, func() (err error) {
		inner, ok := s.Stmt.(driver.StmtExecContext)
		if !ok {
			return fmt.Errorf("execute statement: %T takes no context", s.Stmt)
		}
		res, err = inner.ExecContext(ctx, args)
		return err
	})
	return res, err
}

// QueryContext runs the statement as a query.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.c.run(s.kind, func() (err error) {
		inner, ok := s.Stmt.(driver.StmtQueryContext)
		if !ok {
			return fmt.Errorf("query statement: %T takes no context", s.Stmt)
		}
		rows, err = inner.QueryContext(ctx, args)
		return err
	})
	return rows, err
}
