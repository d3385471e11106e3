package storetest

import (
	"testing"
	"time"

	"ichido.dev/ichido"
)

func claimCases() []Case {
	return []Case{
		{"Claim/OldestDueFirst", "an event must not wait for ever behind newer ones", claimOrder},
		{"Claim/SlotsOfEachSource", "a slow source must not take the workers of another", claimSlots},
		{"Claim/Bytes", "a worker has a bounded memory, and a large event must pass all the same", claimBytes},
		{"Claim/IsExclusiveForItsLease", "two handlers at once are two effects", claimExclusive},
		{"Claim/EveryTokenIsFresh", "a worker's name is not a fence: a late write of its own past would pass", claimTokens},
		{"Claim/CountsTheAttempt", "a handler that kills its process must not be tried for ever", claimAttempts},
		{"Claim/NotBeforeItIsDue", "backoff protects what is failing", claimDue},
		{"Claim/LapsedLeaseIsDueAgain", "a dead worker's events must not be stuck", claimLapsed},
		{"Claim/LapseWithoutAStartSpendsNoAttempt", "an event must not become a dead letter for restarts before its turn came", claimUnstarted},
		{"Claim/DeathsOnlyOfStartedHandlers", "an event must not become a dead letter for a crash that it did not cause", claimDeaths},
		{"Claim/SuspectsOneAtATime", "an event that kills processes must not take the others with it", claimSuspects},
		{"Claim/SuspectsOfEachSource", "a source whose destination hangs must not hold up the others after a crash", claimSuspectsBySource},
		{"Claim/SuspectsByDeaths", "three kills from outside must not convict whatever happens to be the oldest", claimFewestDeaths},
		{"Extend/RenewsTheLease", "a long handler is not a dead one", extendRenews},
		{"Extend/LateByAnOldTokenChangesNothing", "a paused worker must not steal the event back", extendLate},
		{"Extend/AfterTheEndByTheLastToken", "a heartbeat that is a little late is no death", extendLapsed},
		{"Extend/JudgesEachRecord", "one lost lease must not cost the others", extendEach},
	}
}

func claimOrder(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	// 1 became due first, but is tried again after the others.
	e.accept("1")
	e.retry(e.claim1(), 3*time.Second)
	e.clock.Advance(time.Second)
	e.accept("2", "3")
	e.clock.Advance(time.Second)
	r := NewRecord("other", "4", "4", e.clock.Now())
	e.put(ichido.Accepted, r)
	e.clock.Advance(time.Hour)
	e.same("first two of one source", []string{"2", "3"}, keys(e.claim(want(2))))
	e.accept("5")
	e.same("rest of both", []string{"4", "1", "5"}, keys(e.claim(want(5, "github", "other"))))
}

func claimSlots(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, source := range []string{"a", "b", "c", "d"} {
		for _, key := range numbered(source, 5) {
			e.put(ichido.Accepted, NewRecord(source, key, key, e.clock.Now()))
		}
	}
	got := map[string]int{}
	for _, r := range e.claim(ichido.Want{Slots: map[string]int{"a": 2, "b": 0, "c": 9, "none": 3}, Lease: lease}) {
		got[r.Source]++
	}
	e.same("claimed of each source", map[string]int{"a": 2, "c": 5}, got)
	if got := e.claim(ichido.Want{Lease: lease}); len(got) != 0 {
		t.Errorf("claimed %v without a slot", keys(got))
	}
}

func claimBytes(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, key := range []string{"a", "b", "c", "d"} {
		r := e.record(key)
		r.Body = make([]byte, 1000)
		e.put(ichido.Accepted, r)
		e.clock.Advance(time.Millisecond)
	}
	w := want(10)
	w.Bytes = 2500
	e.same("up to 2500 bytes", []string{"a", "b"}, keys(e.claim(w)))
	w.Bytes = 10
	e.same("one that is larger", []string{"c"}, keys(e.claim(w)))
	w.Bytes = 1000
	e.same("one that fits exactly", []string{"d"}, keys(e.claim(w)))
}

func claimExclusive(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	first := e.claim1()
	e.same("claimed record", []any{ichido.Claimed, e.clock.Now().Add(lease)}, []any{first.State, first.Due})
	e.clock.Advance(lease - time.Millisecond)
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v inside the lease of another", keys(got))
	}
	e.clock.Advance(time.Millisecond)
	e.claim1()
}

func claimTokens(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	seen := map[uint64]bool{}
	for range 20 {
		r := e.claim1()
		if r.Token == 0 || seen[r.Token] {
			t.Fatalf("token %d is zero or was used before", r.Token)
		}
		seen[r.Token] = true
		e.same("stored token", r.Token, e.get(*r).Token)
		e.retry(r, 0)
	}
}

func claimAttempts(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	e.same("first attempt", []int{1, 1}, []int{r.Attempts, e.get(*r).Attempts})
	e.retry(r, 0)
	r = e.claim1()
	e.same("second attempt", 2, r.Attempts)
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Pending, GiveBack: true})
	e.same("given back", 1, e.get(*r).Attempts)
	r = e.claim1()
	e.same("second attempt, again", 2, r.Attempts)
	e.Queue.Mark(r, true)
	e.clock.Advance(lease)
	e.same("a claim that lapsed while a handler ran was an attempt", 3, e.claim1().Attempts)
}

// claimUnstarted lets claims lapse before a handler has started, and comes too
// late for some of them: whoever settles or extends after all has made his
// attempt.
func claimUnstarted(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	a := e.accept("a")[0]
	put := []ichido.Record{e.record("b")}
	offered := &put[0]
	offered.State, offered.Token, offered.Lease = ichido.Claimed, 7, lease
	e.put(ichido.Accepted, put...)
	for range 5 {
		r := e.claim1()
		e.same("attempts when claimed", []int{1, 1}, []int{r.Attempts, e.get(*r).Attempts})
		if r.Key != "a" {
			t.Fatalf("claimed %s", r.Key)
		}
		e.clock.Advance(lease / 2)
		e.extend(nil, offered, lease)
		e.clock.Advance(lease / 2)
	}
	// A claim for another source looks at the leases, and takes nothing.
	lapse := func() {
		t.Helper()
		e.clock.Advance(lease)
		if got := e.claim(want(1, "other")); len(got) != 0 {
			t.Fatalf("claimed %v", keys(got))
		}
	}
	lapse()
	e.same("attempts after the lapses", []int{0, 0}, []int{e.get(a).Attempts, e.get(*offered).Attempts})
	e.extend(nil, offered, lease)
	e.same("attempts after a late extension", 1, e.get(*offered).Attempts)
	lapse()
	e.same("attempts when that lapsed as well", 0, e.get(*offered).Attempts)
	e.done(offered)
	e.same("attempts after a late end", 1, e.get(*offered).Attempts)

	r := e.claim1()
	lapse()
	e.retry(r, 0)
	e.same("attempts after a late retry", 1, e.get(a).Attempts)
	r = e.claim1()
	lapse()
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Pending, GiveBack: true})
	e.same("attempts after they were given back late", 1, e.get(a).Attempts)

	r = e.claim1()
	e.Queue.Mark(r, true)
	lapse()
	e.same("attempts and deaths after a lapse while a handler ran", []int{2, 1}, []int{e.get(a).Attempts, e.get(a).Deaths})
	e.extend(nil, r, lease)
	e.same("and after an extension", []int{2, 0}, []int{e.get(a).Attempts, e.get(a).Deaths})
	e.Queue.Mark(r, false)
	lapse()
	e.same("and after a lapse when the handler had ended", []int{2, 0}, []int{e.get(a).Attempts, e.get(a).Deaths})
}

func claimDue(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	e.retry(r, 10*time.Second)
	e.same("due", e.clock.Now().Add(10*time.Second), e.get(*r).Due)
	e.clock.Advance(10*time.Second - time.Millisecond)
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v before it was due", keys(got))
	}
	e.clock.Advance(time.Millisecond)
	e.claim1()
}

func claimLapsed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	first := e.claim1()
	e.clock.Advance(lease)
	second := e.claim1()
	if second.Token == first.Token {
		t.Error("the second claim has the token of the first")
	}
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: first, State: ichido.Done, Outcome: ichido.Applied})
	e.done(second)
	e.same("state", ichido.Done, e.get(*first).State)
}

func claimDeaths(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	e.claim1()
	e.clock.Advance(lease)
	r := e.claim1()
	e.same("deaths after a lapse without a handler", 0, r.Deaths)
	e.Queue.Mark(r, true)
	if !e.get(*r).Started {
		t.Error("an event whose handler runs is not started")
	}
	e.retry(r, 0)
	r = e.claim1()
	e.same("deaths after a retry", 0, r.Deaths)
	e.Queue.Mark(r, true)
	e.Queue.Mark(r, false)
	e.clock.Advance(lease)
	r = e.claim1()
	e.same("attempts and deaths after a lapse when the handler had ended", []int{3, 0}, []int{r.Attempts, r.Deaths})
	e.Queue.Mark(r, true)
	e.clock.Advance(lease)
	old := r
	r = e.claim1()
	e.same("deaths after a lapse while a handler ran", []int{1, 1}, []int{r.Deaths, e.get(*r).Deaths})
	e.Queue.Mark(old, true)
	if e.get(*r).Started {
		t.Error("a mark with an old token counts for the claim after it")
	}
	e.Queue.Mark(r, true)
	e.Queue.Mark(old, true)
	e.Queue.Mark(old, false)
	if !e.get(*r).Started {
		t.Error("a mark with an old token ends that of the claim after it")
	}
	e.Queue.Mark(r, false)
	e.clock.Advance(lease)
	e.same("deaths after a lapse under another claim", 1, e.claim1().Deaths)
}

// suspects asks for one of each source that the rules use.
var suspects = map[string]bool{"github": true, "other": true}

// die claims n events of github, and lets the claims lapse while their handlers
// run.
func (e *env) die(n int) {
	e.Helper()
	got := e.claim(ichido.Want{Slots: want(10).Slots, Lease: lease, Suspects: suspects})
	if len(got) != n {
		e.Fatalf("claimed %v, want %d events", keys(got), n)
	}
	for i := range got {
		e.Queue.Mark(&got[i], true)
	}
	e.clock.Advance(lease)
}

func claimSuspects(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("s1", "s2", "s3")
	e.die(3)
	e.accept("a", "b")
	w := want(10)
	e.same("not asked for", []string{"a", "b"}, keys(e.claim(w)))
	w.Suspects = suspects
	e.same("one", []string{"s1"}, keys(e.claim(w)))
	e.accept("c")
	e.same("the next, beside others", []string{"s2", "c"}, keys(e.claim(w)))
	w.Suspects = map[string]bool{"other": true}
	if got := e.claim(w); len(got) != 0 {
		t.Errorf("claimed %v, want none", keys(got))
	}
	if got := e.claim(ichido.Want{Slots: map[string]int{"other": 5}, Lease: lease, Suspects: suspects}); len(got) != 0 {
		t.Errorf("claimed a suspect of a source that was not wanted: %v", keys(got))
	}
	w.Suspects, w.Slots["github"] = suspects, 1
	e.accept("d")
	e.same("within the slots", 1, len(e.claim(w)))
}

func claimSuspectsBySource(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("s1", "s2")
	other := []ichido.Record{e.record("o1"), e.record("o2")}
	for i := range other {
		other[i] = NewRecord("other", other[i].Key, "body", e.clock.Now())
	}
	e.put(ichido.Accepted, other...)
	w := ichido.Want{Slots: map[string]int{"github": 10, "other": 10}, Lease: lease}
	got := e.claim(w)
	for i := range got {
		e.Queue.Mark(&got[i], true)
	}
	e.clock.Advance(lease)
	w.Suspects = suspects
	sources := map[string]int{}
	for _, r := range e.claim(w) {
		sources[r.Source]++
	}
	e.same("suspects by source", map[string]int{"github": 1, "other": 1}, sources)
}

func claimFewestDeaths(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("s1", "s2")
	e.die(2)
	w := want(10)
	w.Suspects = suspects
	for _, turn := range []string{"s1", "s2", "s1"} {
		got := e.claim(w)
		e.same("whose turn it is", []string{turn}, keys(got))
		e.Queue.Mark(&got[0], true)
		e.clock.Advance(lease)
	}
}

func extendRenews(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	for range 5 {
		e.clock.Advance(lease / 2)
		e.extend(nil, r, lease)
		e.same("end of the lease", e.clock.Now().Add(lease), e.get(*r).Due)
		if got := e.claim(want(10)); len(got) != 0 {
			t.Fatal("claimed an event whose lease was extended")
		}
	}
	e.done(r)
	e.extend(ichido.ErrLeaseLost, r, lease)
}

func extendLate(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	old := e.claim1()
	e.clock.Advance(lease)
	e.claim1()
	before := e.get(*old)
	e.extend(ichido.ErrLeaseLost, old, time.Hour)
	zero := *old
	zero.Token = 0
	e.extend(ichido.ErrLeaseLost, &zero, time.Hour)
	e.same("the event", before, e.get(*old))
}

func extendLapsed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	e.clock.Advance(lease)
	// A claim for another source may look at the lease, but takes nothing.
	if got := e.claim(want(1, "other")); len(got) != 0 {
		t.Fatalf("claimed %v", keys(got))
	}
	e.extend(nil, r, lease)
	if got := e.claim(want(10)); len(got) != 0 {
		t.Error("claimed an event whose lease was renewed")
	}
	e.same("no death was counted", 0, e.get(*r).Deaths)
	e.done(r)
}

func extendEach(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a", "b", "c")
	got := e.claim(want(3))
	e.done(&got[1])
	e.clock.Advance(lease / 2)
	errs, err := e.Queue.Extend(e.ctx, []*ichido.Record{&got[0], &got[1], &got[2]}, lease)
	if err != nil {
		t.Fatal(err)
	}
	e.same("errors", []bool{false, true, false}, []bool{errs[0] != nil, errs[1] != nil, errs[2] != nil})
	for _, i := range []int{0, 2} {
		e.same("end of the lease", e.clock.Now().Add(lease), e.get(got[i]).Due)
	}
	e.same("settled", ichido.Done, e.get(got[1]).State)
}
