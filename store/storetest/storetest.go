// Package storetest is the store contract as tests. [Run] puts a store through
// every rule of the comments of ichido.Queue, Archive, Claims and Applier;
// each rule is a named subtest that says why it is there.
//
// It knows no store and no database: a store's own test opens it, and checks
// what only that store can know. It is for tests only.
package storetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
)

// Open opens an empty store for one test. It registers with t.Cleanup what
// must be closed.
type Open func(t testing.TB, s Setup) *Store

// Setup is what a test asks of a store. Zero fields mean the store's default.
type Setup struct {
	// Clock is the store's only clock. It stands still until it is moved.
	Clock func() time.Time

	Capacity       int           // events
	ClaimCapacity  int           // completed inline claims
	ClaimRunning   int           // held inline claims
	ClaimRetention time.Duration // of completed inline claims
}

// Store is an open store. A feature that it does not have is a nil field, and
// named in Without.
type Store struct {
	Queue   ichido.Queue
	Archive ichido.Archive
	Claims  ichido.Claims

	// Apply makes an Applier. Its handler gets a function that makes an
	// effect in the transaction of the event.
	Apply func(Handler) ichido.Applier
	// Effects returns the effects that are really there.
	Effects func(t testing.TB) []string

	// Crash opens the store again from what it had made durable so far, as
	// after the sudden end of the process, and leaves the old one to itself.
	Crash func(t testing.TB) *Store

	// Check fails the test when the store's own invariants do not hold.
	Check func(t testing.TB)

	// Without says why a feature is not there, by its name: "Claims", "Apply",
	// "Crash" or "Check". Run prints it, and fails for one that nobody
	// explained: a suite that leaves out rules in silence says too much.
	Without map[string]string
}

// Handler makes effects in the transaction of an event.
type Handler func(ctx context.Context, effect func(name string) error) error

// Case is one rule.
type Case struct {
	Name string
	Why  string // the reason for the rule
	Run  func(t testing.TB, open Open)
}

// Cases returns all rules that the given store has the features for.
func Cases(s *Store) []Case {
	var all []Case
	for _, topic := range []struct {
		has   bool
		cases []Case
	}{
		{true, putCases()},
		{true, claimCases()},
		{true, settleCases()},
		{true, archiveCases()},
		{true, replayCases()},
		{true, purgeCases()},
		{true, concurrencyCases()},
		{s.Claims != nil, claimsCases()},
		{s.Apply != nil, applierCases()},
		{s.Crash != nil, crashCases()},
		{s.Crash != nil && s.Claims != nil, crashClaimsCases()},
		{s.Crash != nil && s.Apply != nil, crashApplierCases()},
	} {
		if topic.has {
			all = append(all, topic.cases...)
		}
	}
	return all
}

// absent says which rules are left out for the features that a store does not
// have, and what is wrong about how it explains that.
func absent(s *Store) (left, wrong []string) {
	has := map[string]bool{"Claims": s.Claims != nil, "Apply": s.Apply != nil, "Crash": s.Crash != nil, "Check": s.Check != nil}
	for _, feature := range slices.Sorted(maps.Keys(has)) {
		why := s.Without[feature]
		switch {
		case has[feature] && why != "":
			wrong = append(wrong, feature+" is there, and Without says that it is not")
		case !has[feature] && why == "":
			wrong = append(wrong, feature+" is not there: say why in Without")
		case !has[feature]:
			left = append(left, "the rules of "+feature+" are left out: "+why)
		}
	}
	for _, feature := range slices.Sorted(maps.Keys(s.Without)) {
		if _, known := has[feature]; !known {
			wrong = append(wrong, "Without names "+feature+", which is no feature")
		}
	}
	if s.Apply != nil && s.Effects == nil {
		wrong = append(wrong, "Apply needs Effects")
	}
	return left, wrong
}

// Run runs every rule as a subtest, and prints what it leaves out.
func Run(t *testing.T, open Open) {
	s := open(t, Setup{Clock: time.Now})
	cases := Cases(s)
	left, wrong := absent(s)
	for _, text := range left {
		t.Log(text)
	}
	for _, text := range wrong {
		t.Error(text)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Log("the rule is there because " + c.Why)
				}
			}()
			c.Run(t, open)
		})
	}
}

// Clock is a clock that stands still until it is moved.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// NewClock returns a clock that shows a fixed time.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
