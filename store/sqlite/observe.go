package sqlite

import (
	"context"
	"fmt"
)

// Commits returns how many transactions the store has committed since it was
// opened. Events divided by commits is how well commits are shared.
func (s *Store) Commits() int64 { return s.commits.Load() }

// Durability reads back from the writing connection what a commit means, for
// example "journal_mode=wal synchronous=2".
func (s *Store) Durability(ctx context.Context) (string, error) {
	var mode string
	var level int
	err := s.do(ctx, &op{name: "read durability", alone: func(w *writer) error {
		if err := pragma(ctx, w.conn, "journal_mode", &mode); err != nil {
			return err
		}
		return pragma(ctx, w.conn, "synchronous", &level)
	}}, true)
	return fmt.Sprintf("journal_mode=%s synchronous=%d", mode, level), err
}
