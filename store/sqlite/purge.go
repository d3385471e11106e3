package sqlite

import (
	"context"
	"fmt"
	"time"
)

// Purge implements [ichido.Archive]. It works in transactions of at most 500
// events, oldest first. A record that is removed with its body counts as a
// body and as a key.
func (s *Store) Purge(ctx context.Context, source string, bodies, keys time.Time) (nBodies, nKeys int, err error) {
	// Bodies go first, those of the events that go as well.
	nBodies, err = s.purge(ctx, source, max(cutoff(bodies), cutoff(keys)), (*txn).purgeBodies)
	if err != nil {
		return nBodies, 0, err
	}
	nKeys, err = s.purge(ctx, source, cutoff(keys), (*txn).purgeKeys)
	return nBodies, nKeys, err
}

// cutoff returns t so that "settled_at < cutoff" means before t; 0 for none.
func cutoff(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return ceil(t)
}

// purge runs a step until it has nothing left to do.
func (s *Store) purge(ctx context.Context, source string, before int64, step func(*txn, string, int64) (int64, error)) (total int, err error) {
	for n := int64(chunk); before > 0 && n == chunk; total += int(n) {
		o := &op{name: "purge events", phase: otherPhase, rows: chunk, run: func(t *txn) (err error) {
			if n, err = step(t, source, before); err != nil {
				return fmt.Errorf("purge events: %w", err)
			}
			return nil
		}}
		if err := s.do(ctx, o, true); err != nil {
			return total, err
		}
	}
	return total, nil
}

// doneBefore lists done events of a source that were settled before a time and
// whose body is there (0) or gone (1), oldest first.
const doneBefore = `SELECT seq FROM ichido_events INDEXED BY ichido_settled
	WHERE source = ? AND state > 1 AND state = 2 AND purged = %d AND settled_at < ? ORDER BY settled_at LIMIT ?`

func (t *txn) purgeBodies(source string, before int64) (n int64, err error) {
	list, err := t.seqs(fmt.Sprintf(doneBefore, 0), source, before, chunk)
	if err != nil {
		return 0, err
	}
	if _, err := t.exec(`DELETE FROM ichido_bodies WHERE seq IN (SELECT value FROM json_each(?))`, list); err != nil {
		return 0, err
	}
	return t.exec(`UPDATE ichido_events SET purged = 1 WHERE seq IN (SELECT value FROM json_each(?))`, list)
}

func (t *txn) purgeKeys(source string, before int64) (n int64, err error) {
	list, err := t.seqs(fmt.Sprintf(doneBefore, 1), source, before, chunk)
	if err != nil {
		return 0, err
	}
	// The highest seq may be among them; it must not be given out again.
	if _, err := t.exec(`UPDATE ichido_meta SET value = max(value, (SELECT coalesce(max(seq), 0) FROM ichido_events)) WHERE name = 'seq'`); err != nil {
		return 0, err
	}
	if n, err = t.exec(`DELETE FROM ichido_events WHERE seq IN (SELECT value FROM json_each(?))`, list); err != nil {
		return 0, err
	}
	t.added -= n
	_, err = t.exec(`UPDATE ichido_meta SET value = value + ? WHERE name = 'purged'`, n)
	return n, err
}

// exec runs a statement that is too rare to be prepared.
func (t *txn) exec(text string, args ...any) (int64, error) {
	res, err := t.w.conn.ExecContext(context.Background(), text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// seqs runs a query for numbers and returns them as a JSON list.
func (t *txn) seqs(query string, args ...any) (list string, err error) {
	found, err := scanAll[int64](t.w.conn.QueryContext(context.Background(), query, args...))
	return seqList(len(found), func(i int) int64 { return found[i] }), err
}
