package storetest

import (
	"testing"
	"time"

	"ichido.dev/ichido"
)

func crashCases() []Case {
	return []Case{
		{"Crash/AfterEveryStep", "what was acknowledged is there, and nothing else", crashSteps},
		{"Crash/ClaimedEventsLapse", "a crash must not strand what was in work", crashClaimed},
		{"Crash/UnstartedClaimsSpendNoAttempt", "restarts in a row must not use up the attempts of an event that waits", crashUnstarted},
		{"Crash/TokensSurvive", "a worker on another machine settles after the database restarted", crashTokens},
	}
}

func crashClaimsCases() []Case {
	return []Case{{"Crash/ClaimsOfDeadOwners", "B10: a claim is released only on proof that its owner is gone", crashClaims}}
}

func crashApplierCases() []Case {
	return []Case{{"Crash/EffectsOfTransactions", "the effect survives exactly when the event does", crashEffects}}
}

// crash ends the process and opens the store again. Nothing that anybody can
// see may have changed by that.
func (e *env) crash() {
	e.Helper()
	events, stats := e.all(), e.stats()
	e.Store = e.Crash(e.TB)
	e.checkAtEnd()
	after := e.all()
	for i := range events {
		events[i].Started = false // nothing runs any more; what did is counted when it is claimed
	}
	for i := range after {
		after[i].Started = false
	}
	e.same("events after the crash", events, after)
	if e.Claims != nil {
		stats.Pending, stats.PendingKeys = 0, nil // the owner of the held claims is gone
	}
	e.same("stats after the crash", stats, e.stats())
	for _, r := range events {
		if got := e.get(r); int64(len(got.Body)) != r.Size && !r.Purged {
			e.Errorf("%s: the body has %d bytes after the crash, want %d", r.Key, len(got.Body), r.Size)
		}
	}
}

func crashSteps(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	var a, b []ichido.Record
	var claimed []ichido.Record
	for _, step := range []func(){
		func() { a = e.accept("a1", "a2", "a3", "a4", "a5", "a6") },
		func() { e.put(ichido.Duplicate, a...) },
		func() { claimed = e.claim(want(5)) },
		func() { e.extend(nil, &claimed[0], time.Hour) },
		func() { e.done(&claimed[0]) },
		func() { e.retry(&claimed[1], time.Second) },
		func() { e.dead(&claimed[2]) },
		func() { e.settle(nil, ichido.Settlement{Record: &claimed[3], State: ichido.Quarantined, Cause: "x"}) },
		func() { e.clock.Advance(time.Hour) },
		func() { e.purge("github", e.clock.Now(), time.Time{}) },
		func() { e.replay(ichido.Filter{State: ichido.Dead}, false) },
		func() { b = e.accept("b1", "b2") },
		func() { e.purge("github", e.clock.Now(), e.clock.Now()) },
		func() { e.put(ichido.Duplicate, b...) },
		func() { e.put(ichido.Accepted, a[0]) }, // its key was purged
		func() { e.put(ichido.Duplicate, a...) },
	} {
		step()
		if t.Failed() {
			return
		}
		e.crash()
	}
	worked := map[string]int{}
	for range 10 {
		for _, r := range e.claim(ichido.Want{Slots: want(10).Slots, Lease: lease, Suspects: suspects}) {
			worked[r.Key]++
			e.done(&r)
		}
	}
	e.same("worked in the end", map[string]int{"a1": 1, "a2": 1, "a3": 1, "a5": 1, "a6": 1, "b1": 1, "b2": 1}, worked)
}

func crashClaimed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a", "b", "c")
	offered := e.record("d")
	offered.State, offered.Token, offered.Lease = ichido.Claimed, 7, lease
	got := e.claim(want(2))
	e.put(ichido.Accepted, offered)
	e.Queue.Mark(&got[0], true)
	e.crash()
	if free := keys(e.claim(want(1))); len(free) != 1 {
		t.Fatalf("nothing can be claimed after the crash")
	}
	e.clock.Advance(lease)
	w := want(10)
	w.Suspects = suspects
	again := map[string]int{}
	for range 5 {
		for _, r := range e.claim(w) {
			again[r.Key]++
			e.same("deaths of "+r.Key, map[string]int{"a": 1}[r.Key], r.Deaths)
			e.done(&r)
		}
	}
	e.same("after the leases", map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, again)
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: &got[0], State: ichido.Done})
}

func crashUnstarted(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	for range 3 {
		r := e.claim1()
		e.same("attempts and deaths", []int{1, 0}, []int{r.Attempts, r.Deaths})
		e.crash()
		e.clock.Advance(lease)
	}
	r := e.claim1()
	e.Queue.Mark(r, true)
	e.crash()
	e.clock.Advance(lease)
	r = e.claim1()
	e.same("attempts and deaths once a handler had started", []int{2, 1}, []int{r.Attempts, r.Deaths})
	e.Queue.Mark(r, true)
	e.Queue.Mark(r, false)
	e.crash()
	e.clock.Advance(lease)
	r = e.claim1()
	e.same("attempts and deaths once a handler had ended, and was not settled", []int{3, 1}, []int{r.Attempts, r.Deaths})
}

func crashTokens(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	e.crash()
	e.extend(nil, r, lease)
	e.crash()
	e.done(r)
	e.crash()
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: r, State: ichido.Done})
}

func crashClaims(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.complete(nil, "done", e.take(ichido.Accepted, "done"))
	token := e.take(ichido.Accepted, "held")
	e.crash()
	e.take(ichido.Duplicate, "done")
	e.complete(ichido.ErrLeaseLost, "held", token)
	e.complete(nil, "held", e.take(ichido.Accepted, "held"))
	e.crash()
	e.take(ichido.Duplicate, "held")
}

func crashEffects(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.applied(ichido.Accepted, e.record("a"), once("a"))
	e.crash()
	e.same("effects", []string{"a"}, e.effects())
	e.accept("b")
	r := e.claim1()
	if err := e.Apply(once("b")).Complete(e.ctx, r, new(ichido.Event), limit); err != nil {
		t.Fatal(err)
	}
	e.crash()
	e.same("effects", []string{"a", "b"}, e.effects())
	e.applied(ichido.Duplicate, e.record("a"), once("again"))
	e.same("effects after a duplicate", []string{"a", "b"}, e.effects())
}
