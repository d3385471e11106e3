// Package storetest is the store contract as tests. [Run] puts a store through
// every rule of the comments of ichido.Queue, Archive, Claims and Applier;
// each rule is a named subtest that says why it is there.
//
// It knows no store and no database: a store's own test opens it, and checks
// what only that store can know. It is for tests only.
package storetest

import (
	"context"
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

// Store is an open store. Fields that are nil are features it does not have;
// their tests are left out.
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
	} {
		if topic.has {
			all = append(all, topic.cases...)
		}
	}
	return all
}

// Run runs every rule as a subtest.
func Run(t *testing.T, open Open) {
	cases := Cases(open(t, Setup{Clock: time.Now}))
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
