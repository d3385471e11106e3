package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Tx returns an [ichido.Applier] for a handler that makes its effect in the
// transaction which stores or completes the event, so that both are there or
// neither. The handler must not end the transaction, which fails the attempt,
// and must not call the store, which waits for it.
//
// The transaction has the writing connection for itself, and the database's
// write lock before it reads: everything else that writes waits for it, in
// this process and in others. When the handler's context ends, the transaction
// is rolled back and others go on, whether the handler looks at its context or
// not; what it does with tx after that fails with sql.ErrTxDone. Only a single
// statement that runs for long, and that was not given the context, is waited
// for.
func (s *Store) Tx(h func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error) ichido.Applier {
	return &applier{s, h}
}

type applier struct {
	s *Store
	h func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error
}

// Accept implements [ichido.Applier].
func (a *applier) Accept(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) (v ichido.Verdict, err error) {
	row := *r
	row.State, row.Outcome, row.Cause = ichido.Done, ichido.Applied, ""
	err = a.exclusive(ctx, limit, "accept event", int64(len(r.Body)), func(ctx context.Context, t *txn, tx *sql.Tx) error {
		if v, err = t.put(&row, 1); err != nil {
			return unavailable("accept event", classify(err), err)
		}
		if v != ichido.Accepted {
			return nil
		}
		return a.handle(ctx, tx, e)
	})
	if err != nil {
		return 0, err
	}
	return v, nil
}

// Complete implements [ichido.Applier].
func (a *applier) Complete(ctx context.Context, r *ichido.Record, e *ichido.Event, limit time.Duration) error {
	err := a.exclusive(ctx, limit, "complete event", int64(len(r.Confirmed)), func(ctx context.Context, t *txn, tx *sql.Tx) error {
		lost, err := t.settle(&ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied, Confirmed: r.Confirmed})
		if err != nil {
			return unavailable("complete event", classify(err), err)
		}
		if lost != nil {
			return lost
		}
		a.s.Mark(r, true)
		defer a.s.Mark(r, false)
		return a.handle(ctx, tx, e)
	})
	if err == nil {
		a.s.running.forget(claim{r.Seq, r.Token})
	}
	return err
}

// lockForWriting changes nothing, but SQLite takes the write lock for it. As
// the first statement it begins reading and writing as one, as BEGIN IMMEDIATE
// does, which database/sql cannot say. A transaction that reads first, and
// writes after another process did, would fail with SQLITE_BUSY_SNAPSHOT,
// however long it is willing to wait.
const lockForWriting = "UPDATE ichido_meta SET value = value WHERE false"

// exclusive runs f in a transaction that has the writing connection for
// itself, commits it when f returned nil, and rolls it back otherwise. ctx
// counts until the transaction has begun; f gets one that ends after limit.
func (a *applier) exclusive(ctx context.Context, limit time.Duration, name string, bytes int64,
	f func(ctx context.Context, t *txn, tx *sql.Tx) error,
) error {
	s := a.s
	endless := context.WithoutCancel(ctx)
	o := &op{name: name, rows: 1, bytes: bytes, begins: true}
	o.alone = func(w *writer) error {
		// The transaction's own context never ends: only this function rolls
		// back, so the prepared statements of the connection always run
		// inside the transaction.
		tx, err := w.conn.BeginTx(endless, nil)
		if err != nil {
			return unavailable(name, classify(err), s.judge(err))
		}
		if _, err := tx.ExecContext(endless, lockForWriting); err != nil {
			w.rollBack(tx)
			return unavailable(name, classify(err), s.judge(fmt.Errorf("lock the database: %w", err)))
		}
		if !o.begin() {
			w.rollBack(tx)
			return nil // nobody waits for it any more
		}
		ctx, cancel := context.WithTimeout(endless, limit)
		defer cancel()
		t := &txn{s: s, w: w, now: s.now(), room: -1}
		if err := f(ctx, t, tx); err != nil {
			w.rollBack(tx)
			return s.judged(err)
		}
		if err := tx.Commit(); err != nil {
			w.open = true
			err = fmt.Errorf("commit: %w", err)
			if classify(err) == rejected {
				return blame(err)
			}
			return unavailable(name, classify(err), s.judge(err))
		}
		s.commits.Add(1)
		s.rows += t.added
		return nil
	}
	err := s.do(ctx, o, true)
	if err != nil && o.state.Load() != begun {
		return unavailable(name, busyHere, err)
	}
	return err
}

// blame says what a handler did that SQLite refused to commit: it wrote what a
// deferred foreign key forbids, or ended the transaction itself, with tx or in
// SQL, or by a statement that rolls back where it fails. The database is well.
func blame(err error) error {
	if code, ok := resultCode(err); ok && code&0xff == codeConstraint {
		return err
	}
	return fmt.Errorf("the handler ended the transaction, which is the store's to end: %w", err)
}

// rollBack ends a transaction of database/sql.
func (w *writer) rollBack(tx *sql.Tx) {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		w.open = true // the driver may have left it open
	}
}

// judged looks at the store's own errors, not at those of a handler.
func (s *Store) judged(err error) error {
	if errors.Is(err, ichido.ErrUnavailable) {
		return s.judge(err)
	}
	return err
}

func (a *applier) handle(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
	return rule.Run(ctx, func(ctx context.Context) error { return a.h(ctx, tx, e) })
}
