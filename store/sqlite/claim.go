package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// Claim implements [ichido.Queue]. What never changes about an event is read
// after the commit and in the caller's goroutine: nobody removes an event that
// is claimed.
func (s *Store) Claim(ctx context.Context, want ichido.Want) ([]ichido.Record, error) {
	if err := s.own(ctx); err != nil {
		return nil, err
	}
	if !s.likely.Load() {
		due, err := s.anyDue(ctx)
		if err != nil || !due {
			return nil, err
		}
	}
	var out []ichido.Record
	o := &op{name: "claim events", phase: claimPhase, run: func(t *txn) (err error) {
		out, err = t.claim(want)
		return err
	}}
	for _, n := range want.Slots {
		o.rows += n
	}
	o.rows = min(o.rows, s.opt.MaxBatch)
	// Once the claim may be in a commit, its rows must reach the caller.
	if err := s.do(ctx, o, true); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, nil
	}
	return s.complete(ctx, out)
}

// anyDue looks without the write lock whether a claim could find anything.
// An idle worker asks once a second.
func (s *Store) anyDue(ctx context.Context) (due bool, err error) {
	now := s.now()
	err = s.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM ichido_events INDEXED BY ichido_leases WHERE state = 1 AND due <= ?1)
		OR EXISTS (SELECT 1 FROM ichido_events INDEXED BY ichido_suspects WHERE state = 0 AND deaths > 0 AND due <= ?1)
		OR EXISTS (`+sourcesDue+`1)`, now).Scan(&due)
	if err != nil {
		return false, readError("claim events", err)
	}
	return due, nil
}

func (t *txn) claim(want ichido.Want) ([]ichido.Record, error) {
	if err := t.reap(); err != nil {
		return nil, err
	}
	chosen, err := t.choose(want)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		t.after = append(t.after, func() { t.s.likely.Store(t.wake) })
		return nil, nil
	}
	token := rule.Token()
	due := t.now + want.Lease.Milliseconds()
	list := seqList(len(chosen), func(i int) int64 { return chosen[i].Seq })
	if _, err := t.w.claim.Exec(due, int64(token), list); err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	for i := range chosen {
		r := &chosen[i]
		r.State, r.Token, r.Due = ichido.Claimed, token, timeOf(due)
		r.Attempts++
	}
	return chosen, nil
}

// choose reads the rows to claim, oldest due first.
func (t *txn) choose(want ichido.Want) (chosen []ichido.Record, err error) {
	suspects := map[string]int{} // by source: 0 or 1
	if len(want.Suspects) > 0 {  // first, so that they are not starved by the others
		if chosen, err = t.suspects(want); err != nil {
			return nil, err
		}
		for i := range chosen {
			suspects[chosen[i].Source] = 1
		}
	}
	sources, err := t.sourcesDue()
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		slots := want.Slots[source] - suspects[source]
		if slots <= 0 {
			continue
		}
		rows, err := t.w.due.Query(source, t.now, slots)
		if err != nil {
			return nil, fmt.Errorf("choose events: %w", err)
		}
		if chosen, err = scanClaims(chosen, rows, func(*row) bool { return true }); err != nil {
			return nil, fmt.Errorf("choose events: %w", err)
		}
	}
	slices.SortFunc(chosen, func(a, b ichido.Record) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Seq, b.Seq))
	})
	var sum int64
	for i := range chosen {
		sum += chosen[i].Size
		if want.Bytes > 0 && sum > want.Bytes && i > 0 {
			return chosen[:i], nil
		}
	}
	return chosen, nil
}

// suspects returns one event that has deaths of each source of which one is
// wanted: the one with the fewest.
func (t *txn) suspects(want ichido.Want) ([]ichido.Record, error) {
	rows, err := t.w.suspects.Query(t.now)
	if err != nil {
		return nil, fmt.Errorf("choose suspect: %w", err)
	}
	last := ""
	found, err := scanClaims(nil, rows, func(r *row) bool {
		first := r.Source != last
		last = r.Source
		return first && want.Slots[r.Source] > 0 && want.Suspects[r.Source]
	})
	if err != nil {
		return nil, fmt.Errorf("choose suspect: %w", err)
	}
	return found, nil
}

// scanClaims appends the rows for which only is true.
func scanClaims(out []ichido.Record, rows *sql.Rows, only func(*row) bool) ([]ichido.Record, error) {
	defer rows.Close()
	var x row
	dest := x.workDest()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if only(&x) {
			out = append(out, x.work())
		}
	}
	return out, errors.Join(rows.Err(), rows.Close())
}

func (t *txn) sourcesDue() ([]string, error) {
	sources, err := scanAll[string](t.w.sources.Query(t.now))
	if err != nil {
		return nil, fmt.Errorf("find sources: %w", err)
	}
	return sources, nil
}

// complete gives claimed records the facts and bodies that claiming them did
// not read: from memory where they are fresh, else from the database. If that
// fails the claims are given back. An event whose body is gone can never be
// worked, and becomes a dead letter instead of costing the others; where that
// fails, it is found again when its lease has ended.
func (s *Store) complete(ctx context.Context, claimed []ichido.Record) ([]ichido.Record, error) {
	others := s.fresh.take(claimed)
	if len(others) > 0 {
		// The caller's context has done its part: the rows are claimed.
		ctx = context.WithoutCancel(ctx)
		if err := s.readOthers(ctx, claimed, others); err != nil {
			back := make([]ichido.Settlement, len(claimed))
			for i := range claimed {
				back[i] = ichido.Settlement{Record: &claimed[i], State: ichido.Pending, GiveBack: true, Cause: "the body could not be read"}
			}
			_, serr := s.Settle(ctx, back)
			return nil, readError("claim events", errors.Join(err, serr))
		}
	}
	whole := claimed[:0]
	var lost []ichido.Settlement
	for _, r := range claimed {
		if r.Body == nil {
			lost = append(lost, ichido.Settlement{Record: &r, State: ichido.Dead, Cause: "body_missing: the database has the event without its body"})
			continue
		}
		whole = append(whole, r)
	}
	if _, err := s.Settle(ctx, lost); err != nil && len(whole) == 0 {
		return nil, err
	}
	return whole, nil
}

// readOthers reads the claimed records with the given indices.
func (s *Store) readOthers(ctx context.Context, claimed []ichido.Record, others []int) error {
	at := make(map[int64]int, len(others))
	for _, i := range others {
		at[claimed[i].Seq] = i
	}
	rows, err := s.db.QueryContext(ctx, `SELECT `+fixedColumns+`, header, body, confirmed FROM ichido_events LEFT JOIN ichido_bodies USING (seq)
		WHERE seq IN (SELECT value FROM json_each(?))`, seqList(len(others), func(i int) int64 { return claimed[others[i]].Seq }))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var x row
		if err := rows.Scan(append(x.fixedDest(), &x.Header, &x.Body, &x.Record.Confirmed)...); err != nil {
			return err
		}
		i, ok := at[x.Seq]
		if !ok {
			continue
		}
		r := x.record()
		if x.Header != nil { // a row of bodies is there
			r.Body = notNil(r.Body)
		}
		setFixed(&claimed[i], &r)
		claimed[i].Confirmed = r.Confirmed
	}
	return errors.Join(rows.Err(), rows.Close())
}

// seqList returns n numbers as JSON, for json_each.
func seqList(n int, seq func(i int) int64) string {
	list := make([]byte, 0, 8*n+2)
	list = append(list, '[')
	for i := range n {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, seq(i), 10)
	}
	return string(append(list, ']'))
}

// Extend implements [ichido.Queue].
func (s *Store) Extend(ctx context.Context, records []*ichido.Record, d time.Duration) ([]error, error) {
	errs := make([]error, len(records))
	o := &op{name: "extend leases", phase: extendPhase, rows: len(records), run: func(t *txn) error {
		for i, r := range records {
			n, err := int64(0), error(nil)
			if r.Token != 0 {
				n, err = rowsAffected(t.w.extend, t.now+d.Milliseconds(), r.Seq, int64(r.Token))
			}
			if err != nil {
				return fmt.Errorf("extend lease: %w", err)
			}
			errs[i] = held(n)
		}
		return nil
	}}
	if len(records) == 0 {
		return nil, nil
	}
	if err := s.own(ctx); err != nil {
		return nil, err
	}
	if err := s.do(ctx, o, false); err != nil {
		return nil, err
	}
	return errs, nil
}

func held(rows int64) error {
	if rows == 0 {
		return ichido.ErrLeaseLost
	}
	return nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
