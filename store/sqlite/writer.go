package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// writer is the one connection that writes, with its prepared statements. It
// belongs to the committer's goroutine, which hands it to one operation after
// the other.
//
// Statements run with the background context: one that was interrupted half
// way would take the others of its transaction down with it.
type writer struct {
	conn *sql.Conn
	open bool // a transaction could not be rolled back yet

	begin, commit, rollback, checkpoint *sql.Stmt

	insert, insertClaimed, insertBody, keep, find, copied      *sql.Stmt
	lapsed, lapsedRunning, reap, sources, due, suspects, claim *sql.Stmt
	extend, settle, settleAll, confirm                         *sql.Stmt
}

// States by their code; see states. They are literals in the SQL below, because
// a partial index serves only a query that names its condition.
const (
	statePending = 0
	stateDone    = 2
)

func newWriter(ctx context.Context, conn *sql.Conn) (*writer, error) {
	w := &writer{conn: conn}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.checkpoint, "PRAGMA wal_checkpoint(PASSIVE)"},

		{&w.insert, `INSERT INTO ichido_events (seq, hash, source, due, size, flags, fingerprint, type, scheme, received_at, signed_at, key)
			VALUES (` + nextSeq + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING`},
		{&w.insertClaimed, `INSERT INTO ichido_events (seq, hash, source, due, size, flags, fingerprint, type, scheme, received_at, signed_at, key,
			state, token, attempts) VALUES (` + nextSeq + `, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, 1) ON CONFLICT (hash) DO NOTHING`},
		{&w.insertBody, `INSERT INTO ichido_bodies (seq, header, body) VALUES (?, ?, ?)`},
		{&w.keep, `UPDATE ichido_events SET state = ?, outcome = ?, cause = ?, attempts = ?, purged = ?, settled_at = due, due = 0 WHERE seq = ?`},
		{&w.find, `SELECT seq, fingerprint FROM ichido_events WHERE hash = ?`},
		{&w.copied, `UPDATE ichido_events SET copies = copies + 1 WHERE seq = ?`},

		{&w.lapsed, `SELECT seq, token FROM ichido_events INDEXED BY ichido_leases WHERE state = 1 AND due <= ?`},
		{&w.lapsedRunning, `UPDATE ichido_events SET started = ? WHERE seq = ? AND token = ? AND state = 1`},
		{&w.reap, `UPDATE ichido_events SET state = 0, deaths = deaths + (started = 1), attempts = attempts - (started = 0)
			WHERE state = 1 AND due <= ?`},
		{&w.sources, sourcesDue},
		{&w.due, eventsDue},
		{&w.suspects, suspectsDue},
		{&w.claim, `UPDATE OR ROLLBACK ichido_events SET state = 1, due = ?, token = ?, attempts = attempts + 1, started = 0
			WHERE seq IN (SELECT value FROM json_each(?))`},

		// A lease that was reaped and not claimed again was no death, and an attempt.
		{&w.extend, `UPDATE ichido_events SET state = 1, due = ?, started = CASE state WHEN 1 THEN started ELSE 0 END,
			deaths = deaths - (state = 0 AND started = 1), attempts = attempts + (state = 0 AND started = 0) WHERE seq = ? AND token = ?`},
		{&w.settleAll, `UPDATE OR ROLLBACK ichido_events SET ` + settled + ` WHERE seq IN (SELECT value FROM json_each(?)) AND token = ?`},
		{&w.settle, `UPDATE ichido_events SET ` + settled + ` WHERE seq = ? AND token = ?`},
		{&w.confirm, `UPDATE ichido_bodies SET confirmed = ? WHERE seq = ?`},
	} {
		stmt, err := conn.PrepareContext(ctx, p.text)
		if err != nil {
			return nil, fmt.Errorf("prepare %q: %w", p.text, err)
		}
		*p.stmt = stmt
	}
	return w, nil
}

// settled is what becomes of an event when its claim ends.
const settled = `state = ?, outcome = ?, cause = ?, settled_at = ?, due = ?, token = 0, started = 0,
	attempts = attempts - ? + (state = 0 AND started = 0), deaths = ? * (deaths - (state = 0 AND started = 1))`

// nextSeq is the parameter for a seq, or, for NULL, the next one: what was
// purged is not given out again.
const nextSeq = `coalesce(?, max((SELECT coalesce(max(seq), 0) FROM ichido_events), (SELECT value FROM ichido_meta WHERE name = 'seq')) + 1)`

// sourcesDue lists the sources with an event that is due, by jumping through
// the index from source to source: the cost follows the number of sources in
// work, not the number of events.
const sourcesDue = `WITH RECURSIVE s (source) AS (
		SELECT (SELECT min(source) FROM ichido_events INDEXED BY ichido_due WHERE state = 0 AND deaths = 0)
		UNION ALL
		SELECT (SELECT min(source) FROM ichido_events INDEXED BY ichido_due WHERE state = 0 AND deaths = 0 AND source > s.source)
		FROM s WHERE s.source IS NOT NULL
	)
	SELECT source FROM s WHERE source IS NOT NULL
		AND (SELECT min(due) FROM ichido_events INDEXED BY ichido_due WHERE source = s.source AND state = 0 AND deaths = 0) <= ?`

const (
	eventsDue = `SELECT ` + workColumns + ` FROM ichido_events INDEXED BY ichido_due
		WHERE source = ? AND state = 0 AND deaths = 0 AND due <= ? ORDER BY due, seq LIMIT ?`
	suspectsDue = `SELECT ` + workColumns + ` FROM ichido_events INDEXED BY ichido_suspects
		WHERE state = 0 AND deaths > 0 AND due <= ? ORDER BY source, deaths, due, seq`
)

// close gives up the connection. Statements are closed first: some drivers
// refuse to close a connection that has any.
func (w *writer) close() {
	for _, stmt := range []*sql.Stmt{
		w.begin, w.commit, w.rollback, w.checkpoint,
		w.insert, w.insertClaimed, w.insertBody, w.keep, w.find, w.copied,
		w.lapsed, w.lapsedRunning, w.reap, w.sources, w.due, w.suspects, w.claim,
		w.extend, w.settle, w.settleAll, w.confirm,
	} {
		_ = stmt.Close()
	}
	discard(w.conn)
}

// rowsAffected runs a statement and returns how many rows it changed.
func rowsAffected(stmt *sql.Stmt, args ...any) (int64, error) {
	res, err := stmt.Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
