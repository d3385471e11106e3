package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"ichido.dev/ichido"
)

// slack is how much the receiver's clock may be ahead of the store's without
// delaying a purge.
const slack = time.Hour

// Purge implements [ichido.Archive]. It walks the events by seq, oldest first
// and over the pool, and hands what is past its retention to the committer in
// small batches. It stops where a whole chunk was received later than what it
// looks for, so a run costs about as much as there is to remove, and no index
// has to be kept for it.
//
// A record that is removed with its body counts as a body and as a key.
func (s *Store) Purge(ctx context.Context, source string, bodies, keys time.Time) (nBodies, nKeys int, err error) {
	p := purge{s: s, source: source, bodies: cutoff(bodies), keys: cutoff(keys)}
	for more := p.bodies > 0 || p.keys > 0; more && err == nil; {
		more, err = p.step(ctx)
	}
	return p.nBodies, p.nKeys, err
}

// cutoff returns t so that "settled_at < cutoff" means before t; 0 for none.
func cutoff(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return ceil(t)
}

type purge struct {
	s              *Store
	source         string
	bodies, keys   int64 // cutoffs, ms
	after          int64 // seq up to which the events were looked at
	nBodies, nKeys int
}

// step looks at one chunk of events and purges what it found.
func (p *purge) step(ctx context.Context) (more bool, err error) {
	newest := max(p.bodies, p.keys)
	rows, err := p.s.db.QueryContext(ctx, `SELECT seq,
			source = ?1 AND state = 2 AND ((settled_at < ?2 AND purged = 0) OR settled_at < ?3),
			received_at < ?4
		FROM ichido_events WHERE seq > ?5 ORDER BY seq LIMIT ?6`,
		p.source, p.bodies, p.keys, newest+slack.Milliseconds(), p.after, chunk)
	if err != nil {
		return false, readError("purge events", err)
	}
	defer rows.Close()
	list := []byte{'['}
	n, old := 0, false
	for rows.Next() {
		var purge, early bool
		if err := rows.Scan(&p.after, &purge, &early); err != nil {
			return false, readError("purge events", err)
		}
		n++
		old = old || early
		if purge {
			if len(list) > 1 {
				list = append(list, ',')
			}
			list = strconv.AppendInt(list, p.after, 10)
		}
	}
	if err := rows.Err(); err != nil {
		return false, readError("purge events", err)
	}
	rows.Close() // before writing, so that a pool of two is enough
	if len(list) > 1 {
		if err := p.remove(ctx, string(append(list, ']'))); err != nil {
			return false, err
		}
	}
	return n == chunk && old, nil
}

// remove purges the events of a JSON list, if they are still what was read.
func (p *purge) remove(ctx context.Context, list string) error {
	var bodies, keys int64
	o := &op{name: "purge events", phase: otherPhase, rows: chunk}
	o.run = func(t *txn) error {
		// A replay may have come between.
		const which = ` IN (SELECT seq FROM ichido_events WHERE seq IN (SELECT value FROM json_each(?)) AND state = 2 AND settled_at < ?)`
		for _, step := range []struct {
			n    *int64
			text string
			args []any
		}{
			{&bodies, `DELETE FROM ichido_bodies WHERE seq` + which, []any{list, max(p.bodies, p.keys)}},
			{nil, `UPDATE ichido_events SET purged = 1 WHERE purged = 0 AND seq` + which, []any{list, max(p.bodies, p.keys)}},
			{nil, `UPDATE ichido_meta SET value = max(value, (SELECT coalesce(max(seq), 0) FROM ichido_events)) WHERE name = 'seq'`, nil},
			{&keys, `DELETE FROM ichido_events WHERE seq` + which, []any{list, p.keys}},
		} {
			res, err := t.w.conn.ExecContext(context.Background(), step.text, step.args...)
			if err != nil {
				return fmt.Errorf("purge events: %w", err)
			}
			if step.n == nil {
				continue
			}
			if *step.n, err = res.RowsAffected(); err != nil {
				return fmt.Errorf("purge events: %w", err)
			}
		}
		if _, err := t.w.conn.ExecContext(context.Background(), `UPDATE ichido_meta SET value = value + ? WHERE name = 'purged'`, keys); err != nil {
			return fmt.Errorf("purge events: %w", err)
		}
		t.added -= keys
		return nil
	}
	if err := p.s.do(ctx, o, true); err != nil {
		return err
	}
	p.nBodies += int(bodies)
	p.nKeys += int(keys)
	return nil
}

var _ ichido.Archive = (*Store)(nil)
