//go:build unix

package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// The benchmarks write where TMPDIR points, or beside the sources: a
// temporary folder in memory would flush nothing.
//
//	go test -run - -bench . -benchtime 100000x ./store/sqlite
//
// cpu-us/event is the CPU of the whole process: the submitters' too. With
// BenchmarkMillion give a small -benchtime, or name its parts with -bench.

func benchStore(b *testing.B) *sqlite.Store {
	s, _ := openPath(b, benchPath(b), sqlite.Options{})
	return s
}

func benchPath(b *testing.B) string {
	dir := os.Getenv("TMPDIR")
	if dir == "" {
		dir = "."
	}
	dir, err := os.MkdirTemp(dir, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir + "/ichido.db"
}

// benchRecord returns an unlike event each time: 1.3 KB of body, 200 bytes of headers.
func benchRecord(n int64) ichido.Record {
	r := storetest.NewRecord("github", fmt.Sprint(time.Now().UnixNano(), " event ", n), "", time.Now())
	r.Body = make([]byte, 1300)
	copy(r.Body, r.Key)
	r.Header = make([]byte, 200)
	return r
}

// measure runs f and reports what it cost for each event.
func measure(b *testing.B, f func()) {
	runtime.GC()
	b.ResetTimer()
	before, start := cpuTime(), time.Now()
	f()
	used, took := cpuTime()-before, time.Since(start)
	b.StopTimer()
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/event")
	b.ReportMetric(float64(b.N)/took.Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// submit has n submitters put b.N events; each waits for its verdict before
// it goes on.
func submit(b *testing.B, s *sqlite.Store, n int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				v, err := s.Put(context.Background(), []ichido.Record{benchRecord(i)})
				if err != nil || v[0] != ichido.Accepted {
					b.Errorf("put: %v, %v", v, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkAccept is what an acknowledged event costs.
func BenchmarkAccept(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("submitters=%d", n), func(b *testing.B) {
			s := benchStore(b)
			measure(b, func() { submit(b, s, n) })
			b.ReportMetric(float64(b.N)/float64(s.Commits()), "events/commit")
		})
	}
}

// work claims and settles until done has counted b.N events.
func work(b *testing.B, s *sqlite.Store, done *atomic.Int64) {
	ctx := context.Background()
	want := ichido.Want{Slots: map[string]int{"github": 128}, Lease: time.Minute, Bytes: 8 << 20}
	for done.Load() < int64(b.N) && !b.Failed() {
		got, err := s.Claim(ctx, want)
		if err != nil {
			b.Error(err)
			return
		}
		if len(got) == 0 {
			select {
			case <-s.Ready():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		settlements := make([]ichido.Settlement, len(got))
		for i := range got {
			if len(got[i].Body) != 1300 {
				b.Errorf("body of %d bytes", len(got[i].Body))
			}
			settlements[i] = ichido.Settlement{Record: &got[i], State: ichido.Done, Outcome: ichido.Applied}
		}
		errs, err := s.Settle(ctx, settlements)
		if err != nil {
			b.Error(err)
			return
		}
		for _, err := range errs {
			if err != nil {
				b.Error(err)
			}
		}
		done.Add(int64(len(got)))
	}
}

// lifecycle has n submitters and four workers bring b.N events to their end.
func lifecycle(b *testing.B, s *sqlite.Store, n int) {
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 4 {
		wg.Go(func() { work(b, s, &done) })
	}
	submit(b, s, n)
	wg.Wait()
}

// BenchmarkLifecycle is an event from its acceptance to its end: accepted by
// 64 or 256 submitters, claimed with its body and settled by four workers.
func BenchmarkLifecycle(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("submitters=%d", n), func(b *testing.B) {
			s := benchStore(b)
			measure(b, func() { lifecycle(b, s, n) })
			b.ReportMetric(float64(b.N)/float64(s.Commits()), "events/commit")
		})
	}
}

// BenchmarkOneCommitEach is what group commit is measured against: the same
// row and body on the same driver and disk, one transaction for each event.
func BenchmarkOneCommitEach(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("submitters=%d", n), func(b *testing.B) {
			path := benchPath(b)
			db := openDB(b, path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
			db.SetMaxOpenConns(1)
			if _, err := db.Exec("CREATE TABLE events (hash BLOB PRIMARY KEY, source TEXT, type TEXT, received INTEGER, header BLOB, body BLOB)"); err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			measure(b, func() {
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							r := benchRecord(i)
							_, err := db.Exec("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
								r.Hash[:], r.Source, r.Type, r.ReceivedAt.UnixMilli(), r.Header, r.Body)
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// BenchmarkMillion is a store with 1,000,000 events that are done: opening
// it, counting it, and accepting more.
func BenchmarkMillion(b *testing.B) {
	path := benchPath(b)
	s, db := openPath(b, path, sqlite.Options{})
	fill := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
		INSERT INTO ichido_events (seq, hash, source, due, size, flags, fingerprint, type, scheme, received_at, state, settled_at, outcome)
		SELECT i, randomblob(16), 'github', 0, 20, 6, randomblob(32), 'push', 'default', 1700000000000 + i, 2, 1700000000000 + i, 'applied' FROM n`
	if _, err := db.Exec(fill); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO ichido_bodies (seq, header, body) SELECT seq, x'', x'0102030405' FROM ichido_events"); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := sqlite.Open(context.Background(), db, sqlite.Options{Capacity: 10_000_000})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			s.Close()
			b.StartTimer()
		}
	})
	s, _ = openPath(b, path, sqlite.Options{})
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			if st, err := s.Stats(context.Background()); err != nil || st.Counts["github"][ichido.Done] < 1_000_000 {
				b.Fatal(st, err)
			}
		}
	})
	b.Run("purge nothing", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Purge(context.Background(), "other", time.Now(), time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list newest", func(b *testing.B) {
		for b.Loop() {
			if got, err := s.List(context.Background(), ichido.Filter{}); err != nil || len(got) != 50 {
				b.Fatal(len(got), err)
			}
		}
	})
	b.Run("accept/submitters=256", func(b *testing.B) { measure(b, func() { submit(b, s, 256) }) })
	b.Run("lifecycle/submitters=256", func(b *testing.B) { measure(b, func() { lifecycle(b, s, 256) }) })
}
