package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"ichido.dev/ichido/internal/migrate"
)

// settings of the writing connection. Sizes are measured:
//
//   - temp_store: statement journals stay in memory instead of a temporary
//     file; 6 of 28 us per event.
//   - cache_size, KiB: a commit that rebalanced an index scans the hash table
//     of the whole page cache, so a bigger cache costs more than it saves.
//   - wal_autocheckpoint, pages: a net. The committer checkpoints earlier,
//     after it has answered, and sees the errors that SQLite's own would hide.
var settings = [...]string{
	"PRAGMA fullfsync = ON", // macOS: fsync does not reach the disk without it
	"PRAGMA checkpoint_fullfsync = ON",
	"PRAGMA foreign_keys = ON", // for the tables of transactional handlers
	"PRAGMA temp_store = MEMORY",
	"PRAGMA cache_size = -8192",
	"PRAGMA wal_autocheckpoint = 8000",
	"PRAGMA journal_size_limit = 67108864",
}

// prepareConn makes conn fit for acknowledging events, or says what to
// change. It returns the path of the database file.
func prepareConn(ctx context.Context, conn *sql.Conn, busy time.Duration) (path string, err error) {
	// First, so that the pragmas after it wait for other processes.
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", busy.Milliseconds())); err != nil {
		return "", fmt.Errorf("set busy_timeout: %w", err)
	}
	err = conn.QueryRowContext(ctx, "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'").Scan(&path)
	if err != nil {
		return "", fmt.Errorf("find the database file: %w", err)
	}
	if path == "" {
		return "", fmt.Errorf("the database is in memory or temporary and would lose acknowledged events: open a file, or use store/memory")
	}
	if err := useWAL(ctx, conn, busy); err != nil {
		return "", err
	}
	var level int
	if err := pragma(ctx, conn, "synchronous", &level); err != nil {
		return "", err
	}
	// It is set even where it is high enough: a level that nobody set may fall
	// to another default once the write-ahead log is in use.
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA synchronous = %d", max(level, full))); err != nil {
		return "", fmt.Errorf("set synchronous: %w", err)
	}
	for _, text := range settings {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
	}
	return path, readBack(ctx, conn)
}

const full = 2 // PRAGMA synchronous: FULL; EXTRA is 3

func pragma(ctx context.Context, conn *sql.Conn, name string, dest any) error {
	if err := conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(dest); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// useWAL switches the database to write-ahead logging. The switch needs the
// database for itself for a moment, and SQLite does not always wait for it.
func useWAL(ctx context.Context, conn *sql.Conn, busy time.Duration) error {
	for deadline := time.Now().Add(busy); ; {
		var mode string
		if err := pragma(ctx, conn, "journal_mode", &mode); err == nil && mode == "wal" {
			return nil
		}
		err := pragma(ctx, conn, "journal_mode = WAL", &mode)
		if err == nil && mode != "wal" {
			return fmt.Errorf("the journal mode is %q, not wal: put the database on a local file system and remove journal_mode from the data source name", mode)
		}
		if err != nil && (classify(err) != busyElsewhere || time.Now().After(deadline)) {
			return fmt.Errorf("switch to wal: %w", err)
		}
		if err != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// readBack checks what durability rests on: a driver or a data source name
// may have its own idea of it.
func readBack(ctx context.Context, conn *sql.Conn) error {
	var mode, locking string
	var level int
	if err := pragma(ctx, conn, "journal_mode", &mode); err != nil {
		return err
	}
	if err := pragma(ctx, conn, "synchronous", &level); err != nil {
		return err
	}
	if err := pragma(ctx, conn, "locking_mode", &locking); err != nil {
		return err
	}
	switch {
	case mode != "wal":
		return fmt.Errorf("the journal mode is %q, not wal: remove journal_mode from the data source name", mode)
	case level < full:
		return fmt.Errorf("synchronous is %d, and an acknowledged event could be lost at a power cut: remove synchronous from the data source name, or set it to FULL", level)
	case locking != "normal":
		return fmt.Errorf("the locking mode is %q, and reads need connections of their own: remove locking_mode from the data source name", locking)
	}
	return nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the schema as files named NNNN_name.sql, for tools that
// apply it themselves. [Open] applies what is missing.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}

const versionTable = "ichido_schema"

// connTx runs migrations over the connection.
type connTx struct{ *sql.Conn }

func (x connTx) Exec(ctx context.Context, text string) error {
	_, err := x.ExecContext(ctx, text)
	return err
}

func (x connTx) Int(ctx context.Context, text string) (n int, err error) {
	err = x.QueryRowContext(ctx, text).Scan(&n)
	return n, err
}

// migrateUp brings the tables up to date. It takes the write lock only when
// there is something to do.
func migrateUp(ctx context.Context, conn *sql.Conn) error {
	steps, err := migrate.Load(Migrations())
	if err != nil {
		return err
	}
	tx := connTx{conn}
	if have, err := migrate.Version(ctx, tx, versionTable); err == nil && have == len(steps) {
		return nil
	}
	if err := tx.Exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("lock the database to migrate it: %w", err)
	}
	if err := migrate.Up(ctx, tx, versionTable, steps); err != nil {
		_ = tx.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		return err
	}
	if err := tx.Exec(ctx, "COMMIT"); err != nil {
		_ = tx.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		return fmt.Errorf("commit the migration: %w", err)
	}
	return nil
}
