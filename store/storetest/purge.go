package storetest

import (
	"fmt"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func purgeCases() []Case {
	return []Case{
		{"Purge/KeysOutliveBodies", "a webhook that comes back after its body is gone is still a duplicate", purgeBodies},
		{"Purge/KeysMakeRoomForTheSameEvent", "after the retention nothing of an event is left", purgeKeys},
		{"Purge/LeavesWhatIsNotDone", "nobody may lose an event that was not worked", purgeLeaves},
		{"Purge/OnlyOlderThanTheCutoff", "a retention is a promise", purgeCutoff},
		{"Purge/OnlyTheSource", "sources have retentions of their own", purgeSource},
		{"Purge/PastStuckEvents", "one event that never ends must not keep all others for ever", purgeStuck},
		{"Purge/CountsSurvive", "what was accepted must add up", purgeCounts},
	}
}

// finish accepts and completes events of a source.
func (e *env) finish(source string, names ...string) (records []ichido.Record) {
	e.Helper()
	for _, name := range names {
		records = append(records, NewRecord(source, name, "body of "+name, e.clock.Now()))
	}
	e.put(ichido.Accepted, records...)
	for _, r := range e.claimAll(source, len(names)) {
		e.done(&r)
	}
	return records
}

func purgeBodies(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.finish("github", "a")[0]
	e.clock.Advance(time.Second)
	n, k := e.purge("github", e.clock.Now(), time.Time{})
	e.same("bodies and keys", []int{1, 0}, []int{n, k})
	got := e.get(r)
	if !got.Purged || got.Body != nil || got.Header != nil || got.Size != int64(len(r.Body)) {
		t.Errorf("after the purge: %+v", got)
	}
	e.put(ichido.Duplicate, r)
	forged := r
	forged.Fingerprint[0] ^= 1
	e.put(ichido.Conflict, forged)
	n, k = e.purge("github", e.clock.Now(), time.Time{})
	e.same("again", []int{0, 0}, []int{n, k})
}

func purgeKeys(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.finish("github", "a")[0]
	e.clock.Advance(time.Second)
	n, k := e.purge("github", time.Time{}, e.clock.Now())
	e.same("bodies and keys", []int{1, 1}, []int{n, k})
	e.same("left", []string{}, keys(e.all()))
	e.put(ichido.Accepted, r)
	if got := e.get(r); got.Seq <= 1 {
		t.Errorf("the event after it has seq %d: a number that was given out must not come back", got.Seq)
	}
}

func purgeLeaves(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("claimed", "dead", "quarantined", "retried")
	got := e.claim(want(4))
	e.dead(&got[1])
	e.settle(nil, ichido.Settlement{Record: &got[2], State: ichido.Quarantined})
	e.retry(&got[3], time.Hour)
	e.accept("pending")
	e.clock.Advance(10 * time.Second)
	before := e.all()
	n, k := e.purge("github", e.clock.Now(), e.clock.Now())
	e.same("bodies and keys", []int{0, 0}, []int{n, k})
	e.same("events", before, e.all())
}

func purgeCutoff(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.finish("github", "old")
	e.clock.Advance(time.Second)
	t1 := e.clock.Now()
	e.finish("github", "edge")
	e.clock.Advance(time.Second)
	e.finish("github", "new")
	n, k := e.purge("github", time.Time{}, time.Time{})
	e.same("no cutoff", []int{0, 0}, []int{n, k})
	n, k = e.purge("github", t1.Add(time.Millisecond), t1)
	e.same("bodies and keys", []int{2, 1}, []int{n, k})
	purged := map[string]bool{}
	for _, r := range e.all() {
		purged[r.Key] = r.Purged
	}
	e.same("purged", map[string]bool{"edge": true, "new": false}, purged)
}

func purgeSource(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.finish("a", "1")
	e.finish("b", "2")
	e.clock.Advance(time.Second)
	n, k := e.purge("a", e.clock.Now(), e.clock.Now())
	e.same("bodies and keys", []int{1, 1}, []int{n, k})
	e.same("left", []string{"2"}, keys(e.all()))
}

func purgeStuck(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.put(ichido.Accepted, NewRecord("stuck", "first", "x", e.clock.Now()))
	for i := range 3 {
		e.finish("github", numbered(fmt.Sprint("k", i), 500)...)
		e.put(ichido.Accepted, NewRecord("stuck", fmt.Sprint("stuck", i), "x", e.clock.Now()))
	}
	e.clock.Advance(time.Second)
	n, k := e.purge("github", e.clock.Now(), e.clock.Now())
	e.same("bodies and keys", []int{1500, 1500}, []int{n, k})
	e.same("left", []string{"first", "stuck0", "stuck1", "stuck2"}, keys(e.all()))
}

func purgeCounts(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.finish("github", "a", "b", "c")
	e.clock.Advance(time.Second)
	e.purge("github", e.clock.Now(), time.Time{})
	e.same("after the bodies", 0, e.stats().Purged)
	e.purge("github", e.clock.Now(), e.clock.Now())
	e.same("after the keys", 3, e.stats().Purged)
	e.finish("github", "d")
	e.clock.Advance(time.Second)
	e.purge("github", time.Time{}, e.clock.Now())
	e.same("summed up", 4, e.stats().Purged)
}
