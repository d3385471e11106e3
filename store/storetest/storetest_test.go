package storetest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/storetest"
)

// The suite is worth what it catches. Each store below breaks one rule, in a
// way that stores of real systems did, and the suite must fail for it.

// recorder is a testing.TB that remembers a failure instead of reporting it.
type recorder struct {
	testing.TB // nil but for what is not overridden

	mu       sync.Mutex // guards everything below
	failed   bool
	log      []string
	cleanups []func()
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.log = append(r.log, text)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Name() string                 { return "recorded" }
func (r *recorder) Error(args ...any)            { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) FailNow()                     { r.fail("FailNow"); runtime.Goexit() }
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Context() context.Context     { return context.Background() }
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// record runs one case and returns what it complained about.
func record(c storetest.Case, open storetest.Open) []string {
	r := &recorder{}
	done := make(chan struct{})
	run := func(f func()) {
		go func() {
			defer func() { done <- struct{}{} }()
			f()
		}()
		<-done
	}
	run(func() { c.Run(r, open) })
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		run(f)
	}
	return r.log
}

// caught runs the whole suite and returns the names of the cases that failed.
func caught(open storetest.Open) []string {
	var names []string
	for _, c := range storetest.Cases(open(&recorder{}, storetest.Setup{Clock: time.Now})) {
		if len(record(c, open)) > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// base is the memory store with crashes: what was put, settled and so on
// stays, because the crash opens the same store again.
func base(s storetest.Setup) (*memory.Store, *storetest.Store) {
	m := memory.New(memory.Options{
		Clock: s.Clock, Keys: s.ClaimRetention,
		Capacity: max(s.Capacity, s.ClaimCapacity), Running: s.ClaimRunning,
	})
	st := &storetest.Store{Queue: m, Archive: m}
	st.KeepEffects(func(h ichido.Handler) ichido.Applier { return m.Apply(h) })
	st.Crash = func(testing.TB) *storetest.Store { return st }
	return m, st
}

func TestTheSuitePassesForTheModel(t *testing.T) {
	got := caught(func(_ testing.TB, s storetest.Setup) *storetest.Store {
		_, st := base(s)
		return st
	})
	if len(got) != 0 {
		t.Errorf("failed for the model: %v", got)
	}
}

func TestTheSuiteCatches(t *testing.T) {
	for _, b := range []struct {
		name string
		sees string // the case that must see it
		wrap func(m *memory.Store, s storetest.Setup) ichido.Queue
	}{
		{
			"a settle that ignores the token", "Settle/StaleTokenChangesNothing",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &tokenless{Store: m} },
		},
		{
			"an extend that ignores the token", "Extend/LateByAnOldTokenChangesNothing",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &tokenless{Store: m} },
		},
		{
			"duplicates by look-up, then insert", "Put/SimultaneousCopiesAreOneEvent",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &lookup{Store: m} },
		},
		{"an answer before the commit", "Crash/AfterEveryStep", nil},
		{
			"eviction at capacity", "Put/FullNeverEvicts",
			func(m *memory.Store, s storetest.Setup) ichido.Queue { return &evicting{Store: m, clock: s.Clock} },
		},
		{
			"no fingerprint compared for what is dead", "Put/VerdictInEveryState",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &credulous{Store: m, state: ichido.Dead} },
		},
		{
			"no fingerprint compared for what is purged", "Put/VerdictInEveryState",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &credulous{Store: m, purged: true} },
		},
		{
			"attempts counted at settle", "Claim/CountsTheAttempt",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &late{Store: m} },
		},
		{
			"a lapse that spends an attempt", "Claim/LapseWithoutAStartSpendsNoAttempt",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue {
				return &spending{Store: m, claims: map[string]int{}}
			},
		},
		{
			"a crash that spends an attempt", "Crash/UnstartedClaimsSpendNoAttempt",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue {
				return &spending{Store: m, claims: map[string]int{}}
			},
		},
		{
			"bodies kept as text", "Put/BodiesAreBinaryExact",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &textual{Store: m} },
		},
		{
			"a worker's name as the token", "Claim/EveryTokenIsFresh",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &named{Store: m} },
		},
		{
			"one suspect over all sources", "Claim/SuspectsOfEachSource",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &timid{Store: m} },
		},
		{
			"deaths that are never forgotten", "Settle/AnEndedAttemptForgetsDeaths",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &grudging{m, map[string]int{}} },
		},
		{
			"all suspects at once", "Claim/SuspectsOneAtATime",
			func(m *memory.Store, _ storetest.Setup) ichido.Queue { return &fearless{Store: m} },
		},
	} {
		t.Run(b.name, func(t *testing.T) {
			open := func(_ testing.TB, s storetest.Setup) *storetest.Store {
				m, st := base(s)
				if b.wrap == nil {
					return early(s)
				}
				st.Queue = b.wrap(m, s)
				return st
			}
			seen(t, b.sees, open)
		})
	}
}

// seen fails the test unless a case fails for a store.
func seen(t *testing.T, name string, open storetest.Open) {
	t.Helper()
	for _, c := range storetest.Cases(open(t, storetest.Setup{Clock: time.Now})) {
		if c.Name == name {
			if log := record(c, open); len(log) == 0 {
				t.Errorf("%s did not see it", c.Name)
			} else {
				t.Logf("%s saw it: %s", c.Name, strings.Join(strings.Fields(log[0]), " "))
			}
			return
		}
	}
	t.Fatalf("there is no case %s", name)
}

// tokenless gives every old claim the current token.
type tokenless struct{ *memory.Store }

func (s *tokenless) current(r ichido.Record) *ichido.Record {
	if now, err := s.Get(context.Background(), r.ID()); err == nil {
		r.Token = now.Token
	}
	return &r
}

func (s *tokenless) Settle(ctx context.Context, all []ichido.Settlement) ([]error, error) {
	all = append([]ichido.Settlement{}, all...)
	for i := range all {
		all[i].Record = s.current(*all[i].Record)
	}
	return s.Store.Settle(ctx, all)
}

func (s *tokenless) Extend(ctx context.Context, all []*ichido.Record, d time.Duration) ([]error, error) {
	all = append([]*ichido.Record{}, all...)
	for i := range all {
		all[i] = s.current(*all[i])
	}
	return s.Store.Extend(ctx, all, d)
}

// lookup decides before it stores.
type lookup struct{ *memory.Store }

func (s *lookup) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	verdicts := make([]ichido.Verdict, len(all))
	for i := range all {
		have, err := s.Get(ctx, all[i].ID())
		runtime.Gosched()
		if err == nil && have.Fingerprint != all[i].Fingerprint {
			verdicts[i] = ichido.Conflict
			continue
		}
		verdicts[i] = ichido.Accepted
		if err == nil {
			verdicts[i] = ichido.Duplicate
		}
		if _, err := s.Store.Put(ctx, all[i:i+1]); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// evicting makes room by forgetting the oldest event.
type evicting struct {
	*memory.Store
	clock func() time.Time
}

func (s *evicting) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	verdicts := make([]ichido.Verdict, len(all))
	for i := range all {
		for range 2 {
			v, err := s.Store.Put(ctx, all[i:i+1])
			if err != nil {
				return nil, err
			}
			if verdicts[i] = v[0]; v[0] != ichido.Full {
				break
			}
			oldest, err := s.Claim(ctx, ichido.Want{Slots: map[string]int{"github": 1}, Lease: time.Minute})
			if err != nil || len(oldest) == 0 {
				return verdicts, err
			}
			if _, err := s.Settle(ctx, []ichido.Settlement{{Record: &oldest[0], State: ichido.Done}}); err != nil {
				return nil, err
			}
			if _, _, err := s.Purge(ctx, "github", time.Time{}, s.clock().Add(time.Second)); err != nil {
				return nil, err
			}
		}
	}
	return verdicts, nil
}

// credulous takes any copy for a duplicate in some state.
type credulous struct {
	*memory.Store
	state  ichido.State
	purged bool
}

func (s *credulous) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	all = append([]ichido.Record{}, all...)
	for i := range all {
		if have, err := s.Get(ctx, all[i].ID()); err == nil && (have.State == s.state || s.purged && have.Purged) {
			all[i].Fingerprint = have.Fingerprint
		}
	}
	return s.Store.Put(ctx, all)
}

// late shows a claim without its attempt.
type late struct{ *memory.Store }

func (s *late) Claim(ctx context.Context, w ichido.Want) ([]ichido.Record, error) {
	got, err := s.Store.Claim(ctx, w)
	for i := range got {
		got[i].Attempts--
	}
	return got, err
}

// spending counts every claim.
type spending struct {
	*memory.Store
	claims map[string]int // by event id
}

func (s *spending) Claim(ctx context.Context, w ichido.Want) ([]ichido.Record, error) {
	got, err := s.Store.Claim(ctx, w)
	for i := range got {
		s.claims[got[i].ID()]++
		got[i].Attempts = s.claims[got[i].ID()]
	}
	return got, err
}

// textual keeps bodies as valid UTF-8.
type textual struct{ *memory.Store }

func (s *textual) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	all = append([]ichido.Record{}, all...)
	for i := range all {
		all[i].Body = []byte(strings.ToValidUTF8(string(all[i].Body), "?"))
	}
	return s.Store.Put(ctx, all)
}

// named gives the same token to every claim.
type named struct{ *memory.Store }

func (s *named) Claim(ctx context.Context, w ichido.Want) ([]ichido.Record, error) {
	got, err := s.Store.Claim(ctx, w)
	for i := range got {
		got[i].Token = 1
	}
	return got, err
}

// fearless claims until there are no suspects left.
type fearless struct{ *memory.Store }

func (s *fearless) Claim(ctx context.Context, w ichido.Want) (all []ichido.Record, err error) {
	for {
		got, err := s.Store.Claim(ctx, w)
		if err != nil || len(got) == 0 {
			return all, err
		}
		all = append(all, got...)
	}
}

// timid asks for a suspect of one source at a time.
type timid struct{ *memory.Store }

func (s *timid) Claim(ctx context.Context, w ichido.Want) ([]ichido.Record, error) {
	if w.Suspects["github"] {
		w.Suspects = map[string]bool{"github": true}
	}
	return s.Store.Claim(ctx, w)
}

// grudging shows the most deaths that an event ever had.
type grudging struct {
	*memory.Store
	deaths map[string]int // by event id
}

func (s *grudging) Get(ctx context.Context, id string) (ichido.Record, error) {
	r, err := s.Store.Get(ctx, id)
	s.deaths[id] = max(s.deaths[id], r.Deaths)
	r.Deaths = s.deaths[id]
	return r, err
}

func (s *grudging) Claim(ctx context.Context, w ichido.Want) ([]ichido.Record, error) {
	got, err := s.Store.Claim(ctx, w)
	for i := range got {
		id := got[i].ID()
		s.deaths[id] = max(s.deaths[id], got[i].Deaths)
		got[i].Deaths = s.deaths[id]
	}
	return got, err
}

// early answers at once and commits a call later: a crash loses the last one.
func early(s storetest.Setup) *storetest.Store {
	m, st := base(s)
	q := &buffered{Store: m}
	st.Queue = q
	st.Archive = q
	st.Crash = func(testing.TB) *storetest.Store {
		q.waiting = nil
		return st
	}
	return st
}

type buffered struct {
	*memory.Store
	waiting []ichido.Record
}

func (s *buffered) Put(ctx context.Context, all []ichido.Record) ([]ichido.Verdict, error) {
	if _, err := s.Store.Put(ctx, s.waiting); err != nil {
		return nil, err
	}
	s.waiting = nil
	verdicts := make([]ichido.Verdict, len(all))
	for i := range all {
		if _, err := s.Store.Get(ctx, all[i].ID()); err == nil {
			verdicts[i] = ichido.Duplicate
		} else {
			verdicts[i] = ichido.Accepted
			s.waiting = append(s.waiting, all[i])
		}
	}
	return verdicts, nil
}

// List shows the buffered events as well, as the page cache would.
func (s *buffered) List(ctx context.Context, f ichido.Filter) ([]ichido.Record, error) {
	got, err := s.Store.List(ctx, f)
	for _, r := range s.waiting {
		r.Body, r.Header = nil, nil
		got = append([]ichido.Record{r}, got...)
	}
	return got, err
}

// Get finds the buffered events as well.
func (s *buffered) Get(ctx context.Context, id string) (ichido.Record, error) {
	for _, r := range s.waiting {
		if r.ID() == id {
			r.Size = int64(len(r.Body))
			return r, nil
		}
	}
	return s.Store.Get(ctx, id)
}
