package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"ichido.dev/ichido"
)

// Get implements [ichido.Archive].
func (s *Store) Get(ctx context.Context, id string) (ichido.Record, error) {
	hash, ok := ichido.ParseID(id)
	if !ok {
		return ichido.Record{}, fmt.Errorf("get event: %w", ichido.ErrNotFound)
	}
	var x row
	err := s.db.QueryRowContext(ctx, `SELECT `+eventColumns+`, header, body, confirmed
		FROM ichido_events LEFT JOIN ichido_bodies USING (seq) WHERE hash = ?`, hash[:]).
		Scan(append(x.eventDest(), &x.Header, &x.Body, &x.Record.Confirmed)...)
	if errors.Is(err, sql.ErrNoRows) {
		return ichido.Record{}, fmt.Errorf("get event: %w", ichido.ErrNotFound)
	}
	if err != nil {
		return ichido.Record{}, readError("get event", err)
	}
	r := x.record()
	r.Started = r.Started || s.running.phase(claim{r.Seq, r.Token}) == phaseRunning
	if !r.Purged {
		r.Body = notNil(r.Body)
	}
	return r, nil
}

// List implements [ichido.Archive].
func (s *Store) List(ctx context.Context, f ichido.Filter) ([]ichido.Record, error) {
	where, args := conditions(&f)
	limit := f.Limit
	if limit == 0 {
		limit = 50
	}
	rows, err := s.db.QueryContext(ctx, `SELECT `+eventColumns+` FROM ichido_events WHERE `+where+` ORDER BY seq DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, readError("list events", err)
	}
	defer rows.Close()
	var out []ichido.Record
	for rows.Next() {
		var x row
		if err := rows.Scan(x.eventDest()...); err != nil {
			return nil, readError("list events", err)
		}
		r := x.record()
		r.Started = r.Started || s.running.phase(claim{r.Seq, r.Token}) == phaseRunning
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, readError("list events", err)
	}
	return out, nil
}

// conditions returns f as SQL, but for its limit.
func conditions(f *ichido.Filter) (where string, args []any) {
	terms := []string{"true"}
	add := func(term string, values ...any) {
		terms = append(terms, term)
		args = append(args, values...)
	}
	if f.ID != "" {
		hash, ok := ichido.ParseID(f.ID)
		if !ok {
			add("false")
		}
		add("hash = ?", hash[:])
	}
	if f.Source != "" {
		add("source = ?", f.Source)
	}
	if f.State != "" { // as a literal, so that a partial index can serve it
		code := stateCode(f.State)
		add(fmt.Sprintf("state = %d", code))
		if code > stateDone {
			add("state > 2") // the condition of ichido_failed, in its words
		}
	}
	if f.Outcome != "" {
		add("outcome = ?", f.Outcome)
	}
	if f.Type != "" {
		add("type = ?", f.Type)
	}
	if f.Key != "" {
		add("key = ?", f.Key)
		if digest, err := hex.DecodeString(f.Key); err == nil && f.Key == hex.EncodeToString(digest) {
			terms[len(terms)-1] = "(key = ? OR (key IS NULL AND fingerprint = ?))"
			args = append(args, digest)
		}
	}
	if !f.Since.IsZero() {
		add("received_at >= ?", ceil(f.Since))
	}
	if !f.Until.IsZero() {
		add("received_at < ?", ceil(f.Until))
	}
	if f.Before != 0 {
		add("seq < ?", f.Before)
	}
	return strings.Join(terms, " AND "), args
}

// countEvents counts over the indexes, which together hold every event once:
// a tenth of the table's pages.
const countEvents = `
	SELECT source, 0, count(*) FROM ichido_events INDEXED BY ichido_due      WHERE state = 0 AND deaths = 0 GROUP BY source
	UNION ALL
	SELECT source, 0, count(*) FROM ichido_events INDEXED BY ichido_suspects WHERE state = 0 AND deaths > 0 GROUP BY source
	UNION ALL
	SELECT source, 1, count(*) FROM ichido_events INDEXED BY ichido_leases   WHERE state = 1                GROUP BY source
	UNION ALL
	SELECT source, state, count(*) FROM ichido_events INDEXED BY ichido_settled WHERE state > 1 GROUP BY source, state`

// countOthers finds the oldest event that is due by the order of acceptance,
// which is in the indexes, and counts what is not events.
const countOthers = `SELECT
	(SELECT received_at FROM ichido_events WHERE seq = (SELECT min(seq) FROM (
		SELECT min(seq) AS seq FROM ichido_events INDEXED BY ichido_due      WHERE state = 0 AND deaths = 0 AND due <= ?1
		UNION ALL
		SELECT min(seq)        FROM ichido_events INDEXED BY ichido_suspects WHERE state = 0 AND deaths > 0 AND due <= ?1))),
	(SELECT value FROM ichido_meta WHERE name = 'purged'),
	(SELECT count(*) FROM ichido_claims INDEXED BY ichido_claims_held WHERE completed_at IS NULL)`

// Stats implements [ichido.Archive]. All of it is of one moment.
func (s *Store) Stats(ctx context.Context) (ichido.Stats, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return ichido.Stats{}, readError("count events", err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	st, err := s.stats(ctx, tx)
	if err != nil {
		return ichido.Stats{}, readError("count events", err)
	}
	return st, nil
}

func (s *Store) stats(ctx context.Context, tx *sql.Tx) (ichido.Stats, error) {
	st := ichido.Stats{Counts: map[string]map[ichido.State]int{}}
	var oldest *int64
	err := tx.QueryRowContext(ctx, countOthers, s.now()).Scan(&oldest, &st.Purged, &st.Pending)
	if err != nil {
		return st, err
	}
	if oldest != nil {
		st.Oldest = timeOf(*oldest)
	}
	if st.Pending > 0 {
		if st.PendingKeys, err = heldClaims(ctx, tx); err != nil {
			return st, err
		}
	}
	rows, err := tx.QueryContext(ctx, countEvents)
	if err != nil {
		return st, err
	}
	defer rows.Close()
	for rows.Next() {
		var source string
		var state, n int
		if err := rows.Scan(&source, &state, &n); err != nil {
			return st, err
		}
		if st.Counts[source] == nil {
			st.Counts[source] = map[ichido.State]int{}
		}
		st.Counts[source][states[state]] += n
	}
	return st, rows.Err()
}
