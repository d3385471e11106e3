// Package migrate applies a store's schema: numbered SQL files, embedded in
// the program, in order, each once. Many processes may start at once, because
// the caller opens a transaction that excludes the others.
//
// It does not undo a step, it knows no database, and it touches no table but
// the one that records what was applied.
package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Step is one file of a schema.
type Step struct {
	Version int    // 1, 2, 3, ...
	Name    string // what it does, from the file's name
	SQL     string
}

// Load reads the steps from files named NNNN_name.sql in the root of fsys.
// Versions start at 1 and have no gap.
func Load(fsys fs.FS) ([]Step, error) {
	names, err := fs.Glob(fsys, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var steps []Step
	for _, name := range names {
		number, title, ok := strings.Cut(strings.TrimSuffix(name, ".sql"), "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil {
			return nil, fmt.Errorf("migration %s: name it NNNN_what_it_does.sql", name)
		}
		if version != len(steps)+1 {
			return nil, fmt.Errorf("migration %s: version %d is missing or there twice", name, len(steps)+1)
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		steps = append(steps, Step{version, title, string(text)})
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("list migrations: no *.sql file")
	}
	return steps, nil
}

// Tx is a transaction of the database that excludes other migrators from
// before the first call until it is committed.
type Tx interface {
	// Exec runs one or several statements without parameters.
	Exec(ctx context.Context, sql string) error
	// Int runs a query that gives one integer.
	Int(ctx context.Context, sql string) (int, error)
}

// Up applies the steps that are newer than what table records, and records
// them. The caller commits when it returned nil, and rolls back otherwise. A
// database with a newer schema than the last step is refused: this program
// does not know what it means.
func Up(ctx context.Context, tx Tx, table string, steps []Step) error {
	err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+table+
		" (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)")
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	have, err := Version(ctx, tx, table)
	if err != nil {
		return err
	}
	if err := known(have, steps); err != nil {
		return err
	}
	for _, s := range steps[have:] {
		if err := tx.Exec(ctx, s.SQL); err != nil {
			return fmt.Errorf("apply migration %d (%s): %w", s.Version, s.Name, err)
		}
		record := fmt.Sprintf("INSERT INTO %s (version, name) VALUES (%d, '%s')",
			table, s.Version, strings.ReplaceAll(s.Name, "'", "''"))
		if err := tx.Exec(ctx, record); err != nil {
			return fmt.Errorf("record migration %d: %w", s.Version, err)
		}
	}
	return nil
}

// Version returns the number of the last step that was applied.
func Version(ctx context.Context, tx Tx, table string) (int, error) {
	v, err := tx.Int(ctx, "SELECT coalesce(max(version), 0) FROM "+table)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return v, nil
}

// known returns an error when a database's version is newer than the steps.
func known(have int, steps []Step) error {
	if last := steps[len(steps)-1].Version; have > last {
		return fmt.Errorf("the database has schema version %d and this program knows %d: run a newer program, or restore a backup from before its first start", have, last)
	}
	return nil
}
