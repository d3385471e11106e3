package storetest

import (
	"fmt"
	"sync"
	"testing"

	"ichido.dev/ichido"
)

func concurrencyCases() []Case {
	return []Case{
		{"Concurrency/EveryEventIsWorkedOnce", "many workers share one store", concurrentWork},
		{"Concurrency/ReadsBesideWrites", "a dashboard must not stop the inbox, nor the inbox the dashboard", concurrentReads},
	}
}

func concurrentWork(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	const senders, each, workers = 8, 60, 6
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				r := NewRecord(fmt.Sprint("source", s%3), fmt.Sprintf("%d-%d", s, i), "x", e.clock.Now())
				v, err := e.Queue.Put(e.ctx, []ichido.Record{r})
				if err != nil || v[0] != ichido.Accepted {
					t.Errorf("put: %v, %v", v, err)
				}
			}
		})
	}
	var mu sync.Mutex
	worked := map[string]int{}
	total := 0
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				finished := total == senders*each
				mu.Unlock()
				if finished || t.Failed() {
					return
				}
				got, err := e.Queue.Claim(e.ctx, want(7, "source0", "source1", "source2"))
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				var all []ichido.Settlement
				mu.Lock()
				for i := range got {
					worked[got[i].Key]++
					total++
					all = append(all, ichido.Settlement{Record: &got[i], State: ichido.Done, Outcome: ichido.Applied})
				}
				mu.Unlock()
				errs, err := e.Queue.Settle(e.ctx, all)
				if err != nil {
					t.Errorf("settle: %v", err)
					return
				}
				for _, err := range errs {
					if err != nil {
						t.Errorf("settle: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	for key, n := range worked {
		if n != 1 {
			t.Errorf("%s was claimed %d times", key, n)
		}
	}
	e.same("worked", senders*each, len(worked))
}

func concurrentReads(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 100 {
			r := e.record(fmt.Sprint("k", i))
			if _, err := e.Queue.Put(e.ctx, []ichido.Record{r}); err != nil {
				t.Errorf("put: %v", err)
			}
			got, err := e.Archive.Get(e.ctx, r.ID())
			if err != nil || string(got.Body) != string(r.Body) {
				t.Errorf("an accepted event cannot be read: %v", err)
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for n := 0; ; {
				st, err := e.Archive.Stats(e.ctx)
				if err != nil {
					t.Errorf("stats: %v", err)
					return
				}
				now := st.Counts["github"][ichido.Pending]
				if now < n {
					t.Errorf("%d pending events became %d", n, now)
				}
				n = now
				if _, err := e.Archive.List(e.ctx, ichido.Filter{}); err != nil {
					t.Errorf("list: %v", err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	e.same("stored", 100, len(e.all()))
}
