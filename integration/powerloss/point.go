package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/faultdriver"
	"ichido.dev/ichido/store/sqlite"
)

// world is a store on a disk, and what it has acknowledged.
type world struct {
	dir   string
	disk  *disk
	db    *sql.DB
	store *sqlite.Store

	mu      sync.Mutex
	stored  map[[16]byte][]byte // bodies of what Put acknowledged
	settled map[[16]byte]bool   // what Settle acknowledged
	puts    int                 // acknowledged
	refused int
}

// names makes the names of VFSs and drivers, which are global.
var names atomic.Int64

// newWorld opens a store in dir on a disk, through a driver with the plan's
// sabotage.
func newWorld(ctx context.Context, dir string, d *disk, plan faultdriver.Plan) (*world, error) {
	w := &world{dir: dir, disk: d, stored: map[[16]byte][]byte{}, settled: map[[16]byte]bool{}}
	name := fmt.Sprintf("powerloss-%d", names.Add(1))
	vfs.Register(name, d)
	sql.Register(name, faultdriver.New(&driver.SQLite{}, plan))
	var err error
	if w.db, err = sql.Open(name, "file:"+filepath.Join(dir, "events.db")+"?vfs="+name); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	w.store, err = sqlite.Open(ctx, w.db, sqlite.Options{MinFree: -1, BusyTimeout: 2 * time.Second})
	if err != nil {
		return nil, errors.Join(err, w.db.Close())
	}
	return w, nil
}

// close gives everything up. After a power cut its errors say nothing.
func (w *world) close() error { return errors.Join(w.store.Close(), w.db.Close()) }

const (
	writers = 6
	workers = 2
)

// work has writers store and workers settle events until the power goes, the
// store fails, or they have made most events.
func (w *world) work(seed uint64, most int) {
	var group sync.WaitGroup
	var made atomic.Int64
	var writing sync.WaitGroup
	written := make(chan struct{})
	for i := range writers {
		writing.Add(1)
		group.Go(func() {
			defer writing.Done()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for made.Load() < int64(most) && !w.over() {
				n := 1 + rng.IntN(3)
				made.Add(int64(n))
				w.put(rng, n)
			}
		})
	}
	go func() { writing.Wait(); close(written) }()
	for range workers {
		group.Go(func() {
			for !w.over() {
				if n := w.claimAndSettle(); n > 0 {
					continue
				}
				select {
				case <-written:
					return
				case <-w.store.Ready():
				case <-w.disk.cut:
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	group.Wait()
}

func (w *world) over() bool {
	select {
	case <-w.disk.cut:
		return true
	case <-w.store.Failed():
		return true
	default:
		return false
	}
}

// put stores n events and notes them once they are acknowledged.
func (w *world) put(rng *rand.Rand, n int) {
	records := make([]ichido.Record, n)
	for i := range records {
		body := make([]byte, 100+rng.IntN(12_000))
		for b := 0; b+8 <= len(body); b += 8 {
			binary.LittleEndian.PutUint64(body[b:], rng.Uint64())
		}
		sum := sha256.Sum256(body)
		records[i] = ichido.Record{
			Source: "s", Key: fmt.Sprintf("%x", sum[:8]), Fingerprint: sum, Type: "t", Strength: ichido.Verified,
			ReceivedAt: time.Now(), Header: []byte("A: b\r\n"), Body: body, State: ichido.Pending,
		}
		copy(records[i].Hash[:], sum[:])
	}
	verdicts, err := w.store.Put(context.Background(), records)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refused++
		return
	}
	w.disk.unlessCut(func() { // what comes back after the cut was not acknowledged
		for i, v := range verdicts {
			if v == ichido.Accepted || v == ichido.Duplicate {
				w.stored[records[i].Hash] = records[i].Body
				w.puts++
			}
		}
	})
}

// claimAndSettle works one batch and returns how many events it was.
func (w *world) claimAndSettle() int {
	ctx := context.Background()
	claimed, err := w.store.Claim(ctx, ichido.Want{Slots: map[string]int{"s": 16}, Lease: time.Minute, Suspects: map[string]bool{"s": true}})
	if err != nil || len(claimed) == 0 {
		return 0
	}
	settlements := make([]ichido.Settlement, len(claimed))
	for i := range claimed {
		settlements[i] = ichido.Settlement{Record: &claimed[i], State: ichido.Done, Outcome: ichido.Applied}
	}
	errs, err := w.store.Settle(ctx, settlements)
	if err != nil {
		return len(claimed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disk.unlessCut(func() {
		for i := range claimed {
			if errs[i] == nil {
				w.settled[claimed[i].Hash] = true
			}
		}
	})
	return len(claimed)
}

// verify opens what is left in dir and returns what of the acknowledged is
// not there.
func (w *world) verify(ctx context.Context, dir string) (lost int, err error) {
	again, err := newWorld(ctx, dir, newDisk(w.disk.rng), faultdriver.Plan{})
	if err != nil {
		return 0, fmt.Errorf("open what is left: %w", err)
	}
	defer func() { err = errors.Join(err, again.close()) }()
	var verdict string
	if err := again.db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil {
		return 0, fmt.Errorf("check integrity: %w", err)
	}
	if verdict != "ok" {
		return 0, fmt.Errorf("check integrity: %s", verdict)
	}
	for hash, body := range w.stored {
		r := ichido.Record{Hash: hash}
		got, err := again.store.Get(ctx, r.ID())
		switch {
		case errors.Is(err, ichido.ErrNotFound):
			lost++
		case err != nil:
			return lost, err
		case !bytes.Equal(got.Body, body):
			lost++
		case w.settled[hash] && got.State != ichido.Done:
			lost++
		}
	}
	again.put(rand.New(rand.NewPCG(1, 2)), 1)
	if again.puts != 1 {
		return lost, errors.New("the store takes no event after it was opened again")
	}
	return lost, nil
}

// powerCut runs a store until the power goes at the given operation, and
// returns how many events it had acknowledged and how many of them are lost.
func powerCut(ctx context.Context, parent string, seed uint64, at int64, plan faultdriver.Plan) (acked, lost int, err error) {
	dir, err := os.MkdirTemp(parent, "cut-")
	if err != nil {
		return 0, 0, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	if err := errors.Join(os.Mkdir(before, 0o700), os.Mkdir(after, 0o700)); err != nil {
		return 0, 0, fmt.Errorf("make a folder: %w", err)
	}
	d := newDisk(rand.New(rand.NewPCG(seed, 3)))
	d.cutAt = at
	w, err := newWorld(ctx, before, d, plan)
	if err != nil && d.isCut {
		w = &world{disk: d} // it went while the database was made
	} else if err != nil {
		return 0, 0, err
	} else {
		w.work(seed, 4000)
		_ = w.close() // its disk is gone
	}
	if err := d.lose(after); err != nil {
		return 0, 0, err
	}
	lost, err = w.verify(ctx, after)
	return w.puts, lost, err
}
