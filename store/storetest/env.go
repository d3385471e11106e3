package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
)

// lease is long enough that no test outlives it without moving the clock.
const lease = time.Minute

// env is a store in a test, with calls that fail the test by themselves.
type env struct {
	testing.TB
	*Store
	ctx   context.Context
	clock *Clock
}

// start opens a store and checks its invariants when the test ends.
func start(t testing.TB, open Open, setup Setup) *env {
	t.Helper()
	e := &env{TB: t, ctx: context.Background(), clock: NewClock()}
	setup.Clock = e.clock.Now
	e.Store = open(t, setup)
	e.checkAtEnd()
	return e
}

// checkAtEnd checks the store's invariants when the test ends, before the
// store is closed.
func (e *env) checkAtEnd() {
	now := *e
	e.Cleanup(func() {
		if !now.Failed() {
			now.invariants()
		}
	})
}

// NewRecord returns a record as an Inbox would make it: of the given source,
// key and body, received at the given time.
func NewRecord(source, key, body string, received time.Time) ichido.Record {
	r := ichido.Record{
		Source: source, Key: key, Type: "push", TypeSigned: true,
		Fingerprint: sha256.Sum256([]byte(body)),
		Strength:    ichido.Verified, Scheme: "default", Secret: 1,
		Time: received.Add(-2 * time.Second), ReceivedAt: received,
		Header: []byte("Content-Type: application/json\r\n"), Body: []byte(body),
		State: ichido.Pending,
	}
	sum := sha256.Sum256([]byte(source + "\x00" + key))
	copy(r.Hash[:], sum[:])
	return r
}

// record returns a new record of source "github".
func (e *env) record(key string) ichido.Record {
	return NewRecord("github", key, "body of "+key, e.clock.Now())
}

// put stores records and fails unless each has the verdict wanted.
func (e *env) put(want ichido.Verdict, records ...ichido.Record) {
	e.Helper()
	got, err := e.Queue.Put(e.ctx, records)
	if err != nil {
		e.Fatalf("put: %v", err)
	}
	if len(got) != len(records) {
		e.Fatalf("%d verdicts for %d records", len(got), len(records))
	}
	for i, v := range got {
		if v != want {
			e.Fatalf("record %d (%s) is %v, want %v", i, records[i].Key, v, want)
		}
	}
}

// accept stores new records with the given keys.
func (e *env) accept(keys ...string) []ichido.Record {
	e.Helper()
	var records []ichido.Record
	for _, key := range keys {
		records = append(records, e.record(key))
	}
	e.put(ichido.Accepted, records...)
	return records
}

// want is up to n events of each source named, github if none is.
func want(n int, sources ...string) ichido.Want {
	if len(sources) == 0 {
		sources = []string{"github"}
	}
	w := ichido.Want{Slots: map[string]int{}, Lease: lease}
	for _, source := range sources {
		w.Slots[source] = n
	}
	return w
}

func (e *env) claim(w ichido.Want) []ichido.Record {
	e.Helper()
	got, err := e.Queue.Claim(e.ctx, w)
	if err != nil {
		e.Fatalf("claim: %v", err)
	}
	return got
}

// claim1 claims the one event that is due.
func (e *env) claim1() *ichido.Record {
	e.Helper()
	got := e.claim(ichido.Want{Slots: want(10).Slots, Lease: lease, Suspects: suspects})
	if len(got) != 1 {
		e.Fatalf("claimed %d events, want 1", len(got))
	}
	return &got[0]
}

// claimAll claims n events of a source, in several calls if the store gives
// fewer at once.
func (e *env) claimAll(source string, n int) (all []ichido.Record) {
	e.Helper()
	for len(all) < n {
		got := e.claim(want(n-len(all), source))
		if len(got) == 0 {
			e.Fatalf("claimed %d events of %s, want %d", len(all), source, n)
		}
		all = append(all, got...)
	}
	return all
}

// settle settles one claim and fails unless that gives the error wanted.
func (e *env) settle(want error, s ichido.Settlement) {
	e.Helper()
	errs, err := e.Queue.Settle(e.ctx, []ichido.Settlement{s})
	if err != nil {
		e.Fatalf("settle: %v", err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], want) {
		e.Fatalf("settle gave %v, want %v", errs, want)
	}
}

func (e *env) done(r *ichido.Record) {
	e.Helper()
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied})
}

func (e *env) dead(r *ichido.Record) {
	e.Helper()
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Dead, Cause: "gave up"})
}

func (e *env) retry(r *ichido.Record, after time.Duration) {
	e.Helper()
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Pending, Cause: "failed", After: after})
}

// extend extends one lease and fails unless that gives the error wanted.
func (e *env) extend(want error, r *ichido.Record, d time.Duration) {
	e.Helper()
	errs, err := e.Queue.Extend(e.ctx, []*ichido.Record{r}, d)
	if err != nil {
		e.Fatalf("extend: %v", err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], want) {
		e.Fatalf("extend gave %v, want %v", errs, want)
	}
}

// get returns the event of a record as it is stored now.
func (e *env) get(r ichido.Record) ichido.Record {
	e.Helper()
	got, err := e.Archive.Get(e.ctx, r.ID())
	if err != nil {
		e.Fatalf("get %s: %v", r.Key, err)
	}
	return got
}

func (e *env) list(f ichido.Filter) []ichido.Record {
	e.Helper()
	got, err := e.Archive.List(e.ctx, f)
	if err != nil {
		e.Fatalf("list: %v", err)
	}
	return got
}

func (e *env) stats() ichido.Stats {
	e.Helper()
	got, err := e.Archive.Stats(e.ctx)
	if err != nil {
		e.Fatalf("stats: %v", err)
	}
	return got
}

func (e *env) purge(source string, bodies, keys time.Time) (nBodies, nKeys int) {
	e.Helper()
	nBodies, nKeys, err := e.Archive.Purge(e.ctx, source, bodies, keys)
	if err != nil {
		e.Fatalf("purge: %v", err)
	}
	return nBodies, nKeys
}

// same fails the test unless two values are equal.
func (e *env) same(what string, want, got any) {
	e.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		e.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func keys(records []ichido.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.Key)
	}
	return out
}

// numbered returns n keys.
func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return out
}

// all lists every event.
func (e *env) all() (out []ichido.Record) {
	e.Helper()
	f := ichido.Filter{Limit: 100}
	for {
		page := e.list(f)
		out = append(out, page...)
		if len(page) < f.Limit {
			slices.Reverse(out)
			return out
		}
		f.Before = page[len(page)-1].Seq
	}
}

// invariants are what holds of every store at every moment.
func (e *env) invariants() {
	e.Helper()
	counts := map[string]map[ichido.State]int{}
	for _, r := range e.all() {
		if counts[r.Source] == nil {
			counts[r.Source] = map[ichido.State]int{}
		}
		counts[r.Source][r.State]++
		settled := r.State == ichido.Done || r.State == ichido.Dead || r.State == ichido.Quarantined
		switch {
		case r.State == ichido.Claimed && r.Token == 0:
			e.Errorf("%s is claimed without a token", r.Key)
		case settled && (r.Token != 0 || r.Started):
			e.Errorf("%s is %s and has a token or is started", r.Key, r.State)
		case settled == r.SettledAt.IsZero():
			e.Errorf("%s is %s and was settled at %v", r.Key, r.State, r.SettledAt)
		case settled != r.Due.IsZero():
			e.Errorf("%s is %s and is due at %v", r.Key, r.State, r.Due)
		case r.Attempts < 0 || r.Deaths < 0:
			e.Errorf("%s has %d attempts and %d deaths", r.Key, r.Attempts, r.Deaths)
		case r.Purged && r.State != ichido.Done:
			e.Errorf("%s is %s and its body was purged", r.Key, r.State)
		}
		got := e.get(r)
		if r.Purged && got.Body != nil || !r.Purged && int64(len(got.Body)) != r.Size {
			e.Errorf("%s: %d bytes of body, size %d, purged %v", r.Key, len(got.Body), r.Size, r.Purged)
		}
	}
	e.same("counts of Stats and of List", counts, e.stats().Counts)
	if e.Check != nil {
		e.Check(e.TB)
	}
}
