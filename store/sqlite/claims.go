package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// claims are inline claims in ichido_claims. One process owns the table: it
// holds a lock on a file beside the database, which ends with it.
type claims struct {
	s     *Store
	owner string
	lock  *os.File // nil where the system has no such lock

	// Owned by the committer. Where several processes share the table for
	// want of a lock, each counts what it knows.
	held, completed int64
	purgedAt        int64 // ms
}

// Claims returns the store's inline claims. The first call takes the lock
// that makes this process their owner: whoever held it before is gone, so the
// claims it left are released. While another process holds it, the error says
// so: its claims are held by handlers that may be running.
func (s *Store) Claims(ctx context.Context) (ichido.Claims, error) {
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	if s.claims != nil {
		return s.claims, nil
	}
	path := s.path + "-claims.lock"
	lock, supported, err := lockFile(path)
	if err != nil {
		return nil, unavailable("own claims", rejected, err)
	}
	if supported && lock == nil {
		return nil, unavailable("own claims", busyElsewhere,
			fmt.Errorf("another process owns the inline claims of this database (it holds a lock on %s): only one process can serve inline sources from it", path))
	}
	c := &claims{s: s, owner: rand.Text(), lock: lock}
	if lock != nil {
		if err := s.files.watchFile(lock); err != nil {
			return nil, unavailable("own claims", rejected, errors.Join(err, c.unlock()))
		}
	}
	o := &op{name: "own claims", phase: otherPhase, rows: 1, run: func(t *txn) error { return c.take(t) }}
	if err := s.do(ctx, o, true); err != nil {
		return nil, errors.Join(err, c.unlock())
	}
	s.claims = c
	return c, nil
}

func (c *claims) unlock() error {
	if c == nil || c.lock == nil {
		return nil
	}
	lock := c.lock
	c.lock = nil
	return lock.Close()
}

// take releases what earlier owners held, and counts the rest.
func (c *claims) take(t *txn) error {
	if c.lock != nil {
		if _, err := t.w.conn.ExecContext(context.Background(), `DELETE FROM ichido_claims WHERE completed_at IS NULL`); err != nil {
			return fmt.Errorf("release claims of owners that are gone: %w", err)
		}
	}
	err := t.w.conn.QueryRowContext(context.Background(), `SELECT
		(SELECT count(*) FROM ichido_claims INDEXED BY ichido_claims_held      WHERE completed_at IS NULL),
		(SELECT count(*) FROM ichido_claims INDEXED BY ichido_claims_completed WHERE completed_at IS NOT NULL)`).
		Scan(&c.held, &c.completed)
	if err != nil {
		return fmt.Errorf("count claims: %w", err)
	}
	return nil
}

// Claim implements [ichido.Claims]. A held claim has room reserved for its
// completion, so that the completed ones never exceed the capacity.
func (c *claims) Claim(ctx context.Context, key string) (v ichido.Verdict, token string, err error) {
	token = rand.Text()
	o := &op{name: "claim key", phase: claimPhase, rows: 1, run: func(t *txn) error {
		v, err = c.claim(t, key, token)
		return err
	}}
	// Once the claim may be in a commit, its token must reach the caller.
	if err := c.s.do(ctx, o, true); err != nil {
		return 0, "", err
	}
	if v != ichido.Accepted {
		token = ""
	}
	return v, token, nil
}

func (c *claims) claim(t *txn, key, token string) (ichido.Verdict, error) {
	ctx, conn := context.Background(), t.w.conn
	old := t.now - c.s.opt.ClaimRetention.Milliseconds()
	var completed *int64
	err := conn.QueryRowContext(ctx, `SELECT completed_at FROM ichido_claims WHERE key = ?`, key).Scan(&completed)
	switch {
	case err == nil && completed == nil:
		return ichido.InProgress, nil
	case err == nil && *completed > old:
		return ichido.Duplicate, nil
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("find claim: %w", err)
	}
	if err == nil { // past its retention
		if _, err := conn.ExecContext(ctx, `DELETE FROM ichido_claims WHERE key = ?`, key); err != nil {
			return 0, fmt.Errorf("purge claim: %w", err)
		}
		t.countClaims(c, 0, -1)
	}
	if err := c.purge(t, old); err != nil {
		return 0, err
	}
	held := c.held + t.claimsHeld
	if held >= int64(c.s.opt.ClaimRunning) || held+c.completed+t.claimsCompleted >= int64(c.s.opt.ClaimCapacity) {
		return ichido.Full, nil
	}
	_, err = conn.ExecContext(ctx, `INSERT INTO ichido_claims (key, token, owner, claimed_at) VALUES (?, ?, ?, ?)`, key, token, c.owner, t.now)
	if err != nil {
		return 0, fmt.Errorf("insert claim: %w", err)
	}
	t.countClaims(c, 1, 0)
	return ichido.Accepted, nil
}

// purge removes completed claims that are past their retention: at capacity,
// and once a minute.
func (c *claims) purge(t *txn, old int64) error {
	room := c.held+t.claimsHeld+c.completed+t.claimsCompleted < int64(c.s.opt.ClaimCapacity)
	if room && t.now-c.purgedAt < time.Minute.Milliseconds() && t.now >= c.purgedAt {
		return nil
	}
	res, err := t.w.conn.ExecContext(context.Background(), `DELETE FROM ichido_claims WHERE key IN
		(SELECT key FROM ichido_claims WHERE completed_at <= ? ORDER BY completed_at LIMIT ?)`, old, chunk)
	if err != nil {
		return fmt.Errorf("purge claims: %w", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("purge claims: %w", err)
	}
	if n < chunk {
		c.purgedAt = t.now
	}
	t.countClaims(c, 0, -n)
	return nil
}

// Complete implements [ichido.Claims].
func (c *claims) Complete(ctx context.Context, key, token string) error {
	return c.end(ctx, "complete claim", func(t *txn) (sql.Result, error) {
		return t.w.conn.ExecContext(context.Background(), `UPDATE ichido_claims SET completed_at = ?
			WHERE key = ? AND token = ? AND completed_at IS NULL`, t.now, key, token)
	}, 1)
}

// Release implements [ichido.Claims].
func (c *claims) Release(ctx context.Context, key, token string) error {
	return c.end(ctx, "release claim", func(t *txn) (sql.Result, error) {
		return t.w.conn.ExecContext(context.Background(), `DELETE FROM ichido_claims
			WHERE key = ? AND token = ? AND completed_at IS NULL`, key, token)
	}, 0)
}

// end runs a statement that ends one held claim, or finds that it is not held.
func (c *claims) end(ctx context.Context, name string, exec func(*txn) (sql.Result, error), completed int64) error {
	var n int64
	o := &op{name: name, phase: settlePhase, rows: 1, run: func(t *txn) error {
		res, err := exec(t)
		if err == nil {
			n, err = res.RowsAffected()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.countClaims(c, -n, n*completed)
		return nil
	}}
	if err := c.s.do(ctx, o, false); err != nil {
		return err
	}
	return held(n)
}

// heldClaims returns the keys of held claims, the oldest first.
func heldClaims(ctx context.Context, tx *sql.Tx) ([]string, error) {
	return scanAll[string](tx.QueryContext(ctx, `SELECT key FROM ichido_claims INDEXED BY ichido_claims_held
		WHERE completed_at IS NULL ORDER BY claimed_at, key LIMIT ?`, rule.MaxPendingKeys))
}

// countClaims changes the counts of claims when the transaction commits, and
// for the rest of it at once.
func (t *txn) countClaims(c *claims, held, completed int64) {
	t.claimsHeld += held
	t.claimsCompleted += completed
	t.after = append(t.after, func() {
		c.held += held
		c.completed += completed
	})
}
