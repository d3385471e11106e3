package memory

import (
	"context"
	"slices"
	"time"

	"ichido.dev/ichido"
)

// Get implements [ichido.Archive].
func (s *Store) Get(_ context.Context, id string) (ichido.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, ok := ichido.ParseID(id)
	row := s.byHash[hash]
	if !ok || row == nil {
		return ichido.Record{}, ichido.ErrNotFound
	}
	return clone(row), nil
}

// matches reports whether a row is selected; Before and Limit are the
// caller's business.
func matches(row *ichido.Record, f *ichido.Filter) bool {
	return (f.ID == "" || row.ID() == f.ID) &&
		(f.Source == "" || row.Source == f.Source) &&
		(f.State == "" || row.State == f.State) &&
		(f.Outcome == "" || row.Outcome == f.Outcome) &&
		(f.Type == "" || row.Type == f.Type) &&
		(f.Key == "" || row.Key == f.Key) &&
		(f.Since.IsZero() || !row.ReceivedAt.Before(f.Since)) &&
		(f.Until.IsZero() || row.ReceivedAt.Before(f.Until)) &&
		(f.Before == 0 || row.Seq < f.Before)
}

// List implements [ichido.Archive].
func (s *Store) List(_ context.Context, f ichido.Filter) ([]ichido.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := f.Limit
	if limit == 0 {
		limit = 50
	}
	var out []ichido.Record
	for _, row := range slices.Backward(s.bySeq) {
		if len(out) == limit {
			break
		}
		if matches(row, &f) {
			r := *row
			r.Header, r.Body, r.Confirmed = nil, nil, nil
			out = append(out, r)
		}
	}
	return out, nil
}

// Stats implements [ichido.Archive].
func (s *Store) Stats(context.Context) (ichido.Stats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ichido.Stats{Counts: map[string]map[ichido.State]int{}, Purged: s.removed}
	st.Pending, st.PendingKeys = s.claims.pending()
	now := s.now()
	for _, row := range s.bySeq {
		if st.Counts[row.Source] == nil {
			st.Counts[row.Source] = map[ichido.State]int{}
		}
		st.Counts[row.Source][row.State]++
		if row.State == ichido.Pending && !row.Due.After(now) &&
			(st.Oldest.IsZero() || row.ReceivedAt.Before(st.Oldest)) {
			st.Oldest = row.ReceivedAt
		}
	}
	return st, nil
}

// Replay implements [ichido.Archive].
func (s *Store) Replay(_ context.Context, f ichido.Filter, dryRun bool) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, found := 0, (*ichido.Record)(nil)
	for _, row := range s.bySeq {
		if f.Limit > 0 && n == f.Limit {
			break
		}
		if !matches(row, &f) {
			continue
		}
		found = row
		if row.Purged || row.Outcome == ichido.Split || (row.State != ichido.Done && row.State != ichido.Dead) {
			continue
		}
		n++
		if dryRun {
			continue
		}
		row.State, row.Outcome, row.Cause = ichido.Pending, "", ""
		row.Due, row.SettledAt = s.now(), time.Time{}
		row.Attempts, row.Deaths = 0, 0
		row.Replays++
		s.signal()
	}
	if f.ID == "" || n > 0 {
		return n, nil
	}
	switch {
	case found == nil:
		return 0, ichido.ErrNotFound
	case found.Purged:
		return 0, ichido.ErrBodyPurged
	default:
		return 0, ichido.ErrNotReplayable
	}
}

// Purge implements [ichido.Archive].
func (s *Store) Purge(_ context.Context, source string, bodies, keys time.Time) (nBodies, nKeys int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := func(row *ichido.Record, before time.Time) bool {
		return row.Source == source && row.State == ichido.Done && !before.IsZero() && row.SettledAt.Before(before)
	}
	for _, row := range s.bySeq {
		if !row.Purged && (done(row, bodies) || done(row, keys)) {
			row.Header, row.Body, row.Confirmed, row.Purged = nil, nil, nil, true
			nBodies++
		}
	}
	nKeys = s.remove(func(row *ichido.Record) bool { return done(row, keys) })
	return nBodies, nKeys, nil
}
