package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"

	"ichido.dev/ichido"
)

// chunk is how many rows one transaction of Replay or Purge changes, so that
// accepts run between.
const chunk = 500

// Replay implements [ichido.Archive]. It works in transactions of at most 500
// events; when one fails, those before it stay replayed and are counted.
func (s *Store) Replay(ctx context.Context, f ichido.Filter, dryRun bool) (int, error) {
	limit := f.Limit
	if limit == 0 {
		limit = math.MaxInt
	}
	where, args := conditions(&f)
	where += " AND state IN (2, 3) AND purged = 0 AND outcome <> 'split'"
	n, err := 0, error(nil)
	if dryRun {
		err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM ichido_events WHERE `+where+` LIMIT ?)`, append(args, limit)...).Scan(&n)
		if err != nil {
			return 0, readError("replay events", err)
		}
	} else if n, err = s.replay(ctx, where, args, limit); err != nil {
		return n, err
	}
	if n == 0 && f.ID != "" {
		return 0, s.whyNot(ctx, f)
	}
	return n, nil
}

func (s *Store) replay(ctx context.Context, where string, args []any, limit int) (n int, err error) {
	var after int64
	for n < limit {
		batch := min(limit-n, chunk)
		var changed int
		o := &op{name: "replay events", phase: otherPhase, rows: batch, run: func(t *txn) error {
			changed = 0
			rows, err := t.w.conn.QueryContext(context.Background(), `UPDATE ichido_events
				SET state = 0, due = ?, outcome = '', cause = '', settled_at = 0, attempts = 0, deaths = 0, replays = replays + 1
				WHERE seq IN (SELECT seq FROM ichido_events WHERE `+where+` AND seq > ? ORDER BY seq LIMIT ?) RETURNING seq`,
				append(append([]any{t.now}, args...), after, batch)...)
			if err != nil {
				return fmt.Errorf("replay events: %w", err)
			}
			defer rows.Close()
			last := after
			for rows.Next() {
				var seq int64
				if err := rows.Scan(&seq); err != nil {
					return fmt.Errorf("replay events: %w", err)
				}
				last = max(last, seq)
				changed++
			}
			t.wake = t.wake || changed > 0
			t.after = append(t.after, func() { after = last })
			return rows.Err()
		}}
		if err := s.do(ctx, o, true); err != nil {
			return n, err
		}
		n += changed
		if changed < batch {
			break
		}
	}
	return n, nil
}

// whyNot says why the one event that f names was not replayed.
func (s *Store) whyNot(ctx context.Context, f ichido.Filter) error {
	f.Limit = 1
	found, err := s.List(ctx, f)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return ichido.ErrNotFound
	case found[0].Purged:
		return ichido.ErrBodyPurged
	default:
		return ichido.ErrNotReplayable
	}
}

// ceil returns the first millisecond that is not before t.
func ceil(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}
