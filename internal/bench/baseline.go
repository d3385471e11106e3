package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// baselineSchema is the table that dedupes: what a team writes on its first
// day, holding what ichido holds of an event.
const baselineSchema = `CREATE TABLE IF NOT EXISTS inbox (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, fingerprint BLOB NOT NULL,
	type TEXT NOT NULL, header TEXT NOT NULL, body BLOB NOT NULL, received_at INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0)`

const baselineInsert = `INSERT INTO inbox (hash, fingerprint, type, header, body, received_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING`

// serveSingle serves the floor's handler with one commit per request: the
// handler calls Exec, as most do, on the same driver, disk and durability as
// ichido.
func serveSingle(ctx context.Context, driver, dir string) (*contestant, error) {
	db, err := openBaseline(ctx, driver, filepath.Join(dir, "single.db"))
	if err != nil {
		return nil, err
	}
	var commits atomic.Int64
	store := func(d *delivered) error {
		commits.Add(1)
		_, err := db.ExecContext(ctx, baselineInsert, d.args()...)
		return err
	}
	c, err := serveBare(ctx, store, func(_ context.Context, m *mark) error { m.Commits = commits.Load(); return nil })
	if err != nil {
		return nil, err
	}
	c.wait = db.Close
	return c, nil
}

// openBaseline opens a database with one connection, because SQLite has one
// writer: more of them would only wait inside SQLite.
func openBaseline(ctx context.Context, driver, path string) (*sql.DB, error) {
	db, err := sql.Open(driver, "file:"+path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", baselineSchema} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("prepare baseline: %w", err)
		}
	}
	return db, nil
}

// delivered is what a bare handler stores of a delivery.
type delivered struct {
	event, header string
	body          []byte
	sum           [32]byte
	at            int64
}

func (d *delivered) args() []any {
	return []any{d.sum[:16], d.sum[:], d.event, d.header, d.body, d.at}
}

// servePrototype serves the floor's handler with a bare group commit behind
// it: one writer that inserts whatever waits in one transaction.
func servePrototype(ctx context.Context, driver, dir string) (*contestant, error) {
	db, err := openBaseline(ctx, driver, filepath.Join(dir, "prototype.db"))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	p := &group{conn: conn, waiting: make(chan *insertion, 1024)}
	if p.insert, err = conn.PrepareContext(ctx, baselineInsert); err != nil {
		return nil, err
	}
	go p.commit(context.WithoutCancel(ctx))
	c, err := serveBare(ctx, p.store, func(_ context.Context, m *mark) error { m.Commits = p.commits.Load(); return nil })
	if err != nil {
		return nil, err
	}
	c.wait = func() error { close(p.waiting); return errors.Join(conn.Close(), db.Close()) }
	return c, nil
}

// group is a single writer over a channel.
type group struct {
	conn    *sql.Conn
	insert  *sql.Stmt
	waiting chan *insertion
	commits atomic.Int64
}

type insertion struct {
	*delivered
	done chan error
}

func (p *group) store(d *delivered) error {
	i := &insertion{d, make(chan error, 1)}
	p.waiting <- i
	return <-i.done
}

// commit writes what waits, at most 512 insertions in one transaction.
func (p *group) commit(ctx context.Context) {
	for first := range p.waiting {
		batch := []*insertion{first}
		for len(batch) < 512 && len(p.waiting) > 0 {
			batch = append(batch, <-p.waiting)
		}
		err := p.transaction(ctx, batch)
		for _, i := range batch {
			i.done <- err
		}
	}
}

func (p *group) transaction(ctx context.Context, batch []*insertion) error {
	if _, err := p.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, i := range batch {
		if _, err := p.insert.ExecContext(ctx, i.args()...); err != nil {
			_, rollback := p.conn.ExecContext(ctx, "ROLLBACK")
			return errors.Join(err, rollback)
		}
	}
	p.commits.Add(1)
	_, err := p.conn.ExecContext(ctx, "COMMIT")
	return err
}
