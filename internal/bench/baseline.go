package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// baselineSchema is the smallest table that dedupes: what a team writes on
// its first day.
const baselineSchema = `CREATE TABLE IF NOT EXISTS inbox (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, type TEXT NOT NULL, body BLOB NOT NULL)`

const baselineInsert = `INSERT INTO inbox (hash, type, body) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING`

// serveBaseline serves the floor's handler with a store behind it, on the
// same driver, disk and durability as ichido: one commit per request, or a
// bare group commit of whatever waits.
func serveBaseline(ctx context.Context, name, driver, dir string) (*contestant, error) {
	db, err := sql.Open(driver, "file:"+filepath.Join(dir, name+".db"))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	b := &baseline{conn: conn, waiting: make(chan *insertion, 1024)}
	for _, statement := range []string{"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", baselineSchema} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("prepare baseline: %w", err)
		}
	}
	if b.insert, err = conn.PrepareContext(ctx, baselineInsert); err != nil {
		return nil, err
	}
	most := 1
	if name == prototype {
		most = 512
	}
	go b.commit(context.WithoutCancel(ctx), most)
	c, err := serveBare(ctx, b.store, b.count)
	if err != nil {
		return nil, err
	}
	c.wait = func() error { close(b.waiting); return errors.Join(conn.Close(), db.Close()) }
	return c, nil
}

// baseline is a single writer over a channel.
type baseline struct {
	conn    *sql.Conn
	insert  *sql.Stmt
	waiting chan *insertion
	commits atomic.Int64
}

type insertion struct {
	event string
	body  []byte
	hash  []byte
	done  chan error
}

func (b *baseline) store(event string, body []byte, sum [32]byte) error {
	i := &insertion{event, body, sum[:16], make(chan error, 1)}
	b.waiting <- i
	return <-i.done
}

// commit writes what waits, at most most insertions in one transaction.
func (b *baseline) commit(ctx context.Context, most int) {
	for first := range b.waiting {
		group := []*insertion{first}
		for len(group) < most && len(b.waiting) > 0 {
			group = append(group, <-b.waiting)
		}
		err := b.transaction(ctx, group)
		for _, i := range group {
			i.done <- err
		}
	}
}

func (b *baseline) transaction(ctx context.Context, group []*insertion) error {
	if _, err := b.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, i := range group {
		if _, err := b.insert.ExecContext(ctx, i.hash, i.event, i.body); err != nil {
			_, rollback := b.conn.ExecContext(ctx, "ROLLBACK")
			return errors.Join(err, rollback)
		}
	}
	b.commits.Add(1)
	_, err := b.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (b *baseline) count(_ context.Context, m *mark) error {
	m.Commits = b.commits.Load()
	return nil
}
