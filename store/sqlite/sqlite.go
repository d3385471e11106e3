package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/flush"
)

// Options are the settings of a [Store]. The zero value is ready to use.
type Options struct {
	// Clock tells the time of due dates, leases and retention. Default time.Now.
	Clock func() time.Time

	// Capacity is the number of events that are kept at once; a new one
	// beyond it is Full. This process counts them when it opens the database
	// and does not see what another one adds. Default 0: no limit.
	Capacity int

	// MinFree is the free space of the file system, in bytes, below which a
	// new event is Full, so that settling and purging still have room. It is
	// looked at no more than once a second. Default 512 MiB; negative: never.
	MinFree int64

	// Queue is the number of calls that wait for the committer. One more is
	// refused, with an error that wraps ichido.ErrUnavailable. Default 4096.
	Queue int

	// MaxBatch and MaxBatchBytes bound what one commit holds, in rows and in
	// bytes of bodies. Default 512 rows and 4 MiB.
	MaxBatch      int
	MaxBatchBytes int64

	// BusyTimeout is how long a write waits while another process writes to
	// the database. Default 5 seconds.
	BusyTimeout time.Duration

	// ClaimRetention is how long a completed inline claim is kept. Default 30 days.
	ClaimRetention time.Duration

	// ClaimCapacity is the number of completed inline claims that are kept,
	// and ClaimRunning the number that may be held at once. Nothing is ever
	// evicted. Default 1,000,000 and 10,000.
	ClaimCapacity int
	ClaimRunning  int

	flush func(folder *os.File) error // (*os.File).Sync where nil; tests set it
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.flush == nil {
		o.flush = (*os.File).Sync
	}
	orDefault(&o.MinFree, 512<<20)
	orDefault(&o.Queue, 4096)
	orDefault(&o.MaxBatch, 512)
	orDefault(&o.MaxBatchBytes, 4<<20)
	orDefault(&o.BusyTimeout, 5*time.Second)
	orDefault(&o.ClaimRetention, 30*24*time.Hour)
	orDefault(&o.ClaimCapacity, 1_000_000)
	orDefault(&o.ClaimRunning, 10_000)
	return o
}

func orDefault[T int | int64 | time.Duration](p *T, d T) {
	if *p == 0 {
		*p = d
	}
}

// Store is an [ichido.Queue] and an [ichido.Archive] in an SQLite database.
type Store struct {
	db   *sql.DB // for reads
	opt  Options
	path string // of the database file

	ready chan struct{}
	// likely says that something may be due, so that a claim need not look
	// first. False only saves work.
	likely atomic.Bool

	sending sync.RWMutex  // held to send on ops, write-locked to close it
	closed  bool          // guarded by sending
	ops     chan *op      // they share commits
	alone   chan *op      // they have the connection for themselves
	stopped chan struct{} // closed when the committer has ended

	commits atomic.Int64          // transactions committed
	failure atomic.Pointer[error] // why the store is broken for good
	failed  chan struct{}         // closed when failure is set

	w    *writer // owned by the committer
	disk disk    // owned by the committer
	rows int64   // events that are kept, where there is a Capacity; owned by the committer

	fresh   fresh
	running running
	files   files

	claimsMu sync.Mutex // guards claims
	claims   *claims
}

var (
	_ ichido.Queue   = (*Store)(nil)
	_ ichido.Archive = (*Store)(nil)
)

// Open returns a store in db, whatever its driver, after bringing its tables
// up to date. It takes one connection of db for itself, sets it to write-ahead
// logging with a flush at every commit, reads that back, and refuses a
// database where it does not hold. The caller closes db after the store.
func Open(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	s := &Store{
		db: db, opt: o.withDefaults(),
		ready:   make(chan struct{}, 1),
		stopped: make(chan struct{}),
		failed:  make(chan struct{}),
	}
	s.ops, s.alone = make(chan *op, s.opt.Queue), make(chan *op, s.opt.Queue)
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open sqlite store: %w", err)
	}
	s.likely.Store(true)
	go s.committer()
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if s.db.Stats().MaxOpenConnections == 1 {
		return errors.New("the pool has one connection, and the store keeps one for writing: call SetMaxOpenConns with 2 or more")
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			discard(conn)
		}
	}()
	if s.path, err = prepareConn(ctx, conn, s.opt.BusyTimeout); err != nil {
		return err
	}
	if err := migrateUp(ctx, conn); err != nil {
		return err
	}
	if err := syncFolder(s.path, s.opt.flush); err != nil { // the database and its log may be new
		return err
	}
	if s.w, err = newWriter(ctx, conn); err != nil {
		return err
	}
	s.disk = disk{path: s.path, min: s.opt.MinFree}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		s.files.watch(s.path+suffix, nil)
	}
	if err := s.files.check(s.opt.Clock()); err != nil {
		return err
	}
	if s.opt.Capacity > 0 {
		err := conn.QueryRowContext(ctx, "SELECT count(*) FROM ichido_events").Scan(&s.rows)
		if err != nil {
			return fmt.Errorf("count events: %w", err)
		}
	}
	return nil
}

func syncFolder(path string, sync func(*os.File) error) error {
	if err := flush.Name(path, sync); err != nil {
		return fmt.Errorf("flush the folder of the database: %w", err)
	}
	return nil
}

// discard closes a connection instead of giving it back to the pool: its
// settings are the store's.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// Close commits what is waiting, refuses what comes later, and returns when
// the writing connection is closed.
func (s *Store) Close() error {
	s.sending.Lock()
	if !s.closed {
		s.closed = true
		close(s.ops)
		close(s.alone)
	}
	s.sending.Unlock()
	<-s.stopped
	s.claimsMu.Lock()
	defer s.claimsMu.Unlock()
	return errors.Join(s.running.close(), s.claims.unlock())
}

// Err returns nil, or why the store is broken for good: after a failed flush
// nobody knows what the disk holds, so it takes no write any more, and the
// process is to end and start again from what the log on the disk says. The
// same holds when somebody removed or replaced a file that it has open, which
// is looked for before a transaction, no more than once a second.
func (s *Store) Err() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Failed returns a channel that is closed when [Store.Err] is no longer nil.
func (s *Store) Failed() <-chan struct{} { return s.failed }

func (s *Store) fail(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		close(s.failed)
	}
}

// Ready implements [ichido.Queue].
func (s *Store) Ready() <-chan struct{} { return s.ready }

// wake says that an event may have become due.
func (s *Store) wake() {
	s.likely.Store(true)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// now is the store's clock in milliseconds.
func (s *Store) now() int64 { return s.opt.Clock().UnixMilli() }

// room returns how many new events may be stored in this transaction.
func (s *Store) room() int64 {
	room := int64(math.MaxInt64)
	if s.opt.Capacity > 0 {
		room = int64(s.opt.Capacity) - s.rows
	}
	if s.disk.low(s.opt.Clock()) {
		room = 0
	}
	return room
}
