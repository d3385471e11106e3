package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"ichido.dev/ichido"
)

// chunk is how many rows one transaction of Replay or Purge changes, so that
// accepts run between.
const chunk = 500

// replayable is what can be replayed; see conditions.
const replayable = "state IN (2, 3) AND purged = 0 AND outcome <> 'split'"

// Replay implements [ichido.Archive]. It works in transactions of at most 500
// events; when one fails, those before it stay replayed and are counted.
func (s *Store) Replay(ctx context.Context, f ichido.Filter, dryRun bool) (int, error) {
	limit := f.Limit
	if limit == 0 {
		limit = math.MaxInt
	}
	where, args := conditions(&f)
	where += " AND " + replayable
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

// replay looks for the events outside of the write lock, because no index may
// serve the filter and others wait for the writer.
func (s *Store) replay(ctx context.Context, where string, args []any, limit int) (n int, err error) {
	if err := s.Err(); err != nil {
		return 0, unavailable("replay events", broken, err)
	}
	var last int64 // what is accepted from now on was not meant
	if err := s.db.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM ichido_events`).Scan(&last); err != nil {
		return 0, readError("replay events", err)
	}
	query := `SELECT seq FROM ichido_events WHERE ` + where + ` AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?`
	for after := int64(0); n < limit; {
		batch := min(limit-n, chunk)
		seqs, err := scanAll[int64](s.db.QueryContext(ctx, query, append(slices.Clone(args), after, last, batch)...))
		if err != nil {
			return n, readError("replay events", err)
		}
		if len(seqs) > 0 {
			changed, err := s.replayThese(ctx, seqs)
			if err != nil {
				return n, err
			}
			n += changed
		}
		if len(seqs) < batch {
			break
		}
		after = seqs[batch-1]
	}
	return n, nil
}

// replayThese replays those of the events that still can be.
func (s *Store) replayThese(ctx context.Context, seqs []int64) (int, error) {
	list := seqList(len(seqs), func(i int) int64 { return seqs[i] })
	var changed int64
	o := &op{name: "replay events", phase: otherPhase, rows: len(seqs), run: func(t *txn) (err error) {
		changed, err = t.exec(`UPDATE ichido_events
			SET state = 0, due = ?, outcome = '', cause = '', settled_at = 0, attempts = 0, deaths = 0, replays = replays + 1
			WHERE seq IN (SELECT value FROM json_each(?)) AND `+replayable, t.now, list)
		if err != nil {
			return fmt.Errorf("replay events: %w", err)
		}
		t.wake = t.wake || changed > 0
		return nil
	}}
	err := s.do(ctx, o, true)
	return int(changed), err
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
