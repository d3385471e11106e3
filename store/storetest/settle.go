package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ichido.dev/ichido"
)

func settleCases() []Case {
	return []Case{
		{"Settle/EveryEnd", "each end has its own facts to show", settleEnds},
		{"Settle/StaleTokenChangesNothing", "a worker that was thought dead must not undo what the next one did", settleStale},
		{"Settle/LapsedButUnclaimed", "the attempt is over and was the only one: doing it again would be the second", settleLapsed},
		{"Settle/JudgesEachSettlement", "one lost lease must not cost the others", settleEach},
		{"Settle/CauseIsShortText", "causes are shown to operators, and errors can be long", settleCause},
		{"Settle/KeepsTheConfirmedState", "what the provider's API said is evidence", settleConfirmed},
		{"Settle/AnEndedAttemptForgetsDeaths", "an event that fails does not end processes, and is not to be worked as if it did", settleDeaths},
		{"Settle/RefusesOtherStates", "an event cannot be settled to claimed", settleStates},
		{"Settle/SameClaimTwice", "the first end counts, or a retry of a settle whose answer was lost would change it", settleTwice},
	}
}

func settleEnds(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, s := range []ichido.Settlement{
		{State: ichido.Done, Outcome: ichido.Applied},
		{State: ichido.Done, Outcome: ichido.Refuted, Cause: "the provider says no"},
		{State: ichido.Dead, Cause: "attempts"},
		{State: ichido.Quarantined, Cause: "payload_unreadable"},
		{State: ichido.Pending, Cause: "503", After: time.Hour},
	} {
		r := e.accept(string(s.State) + s.Outcome)[0]
		s.Record = e.claim1()
		e.clock.Advance(time.Second)
		e.settle(nil, s)
		got := e.get(r)
		want := *s.Record
		want.State, want.Outcome, want.Cause = s.State, s.Outcome, s.Cause
		want.Token, want.Started, want.Due = 0, false, time.Time{}
		if s.State == ichido.Pending {
			want.Due = e.clock.Now().Add(time.Hour)
		} else {
			want.SettledAt = e.clock.Now()
		}
		e.same(r.Key, want, got)
	}
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v, want none", keys(got))
	}
}

func settleStale(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	ends := []ichido.Settlement{
		{State: ichido.Done, Outcome: ichido.Applied},
		{State: ichido.Dead, Cause: "stale"},
		{State: ichido.Quarantined, Cause: "stale"},
		{State: ichido.Pending, After: time.Hour, GiveBack: true, Confirmed: []byte("stale")},
	}
	refused := func(what string, r ichido.Record) {
		t.Helper()
		before := e.get(r)
		for _, s := range ends {
			s.Record = &r
			e.settle(ichido.ErrLeaseLost, s)
		}
		e.same(what, before, e.get(r))
	}
	e.accept("a")
	first := e.claim1()
	e.clock.Advance(lease)
	second := e.claim1()
	refused("after another claim", *first)
	other := *second
	other.Token ^= 1 << 40
	refused("with a wrong token", other)
	other.Token = 0
	refused("with no token", other)
	e.retry(second, 0)
	refused("after a retry", *second)
	other = *second
	other.Token = 0
	refused("of a pending event, with no token", other)
	third := e.claim1()
	refused("after the next claim", *second)
	e.done(third)
	refused("after it was done", *third)
	other = *third
	other.Token = 0
	refused("of a done event, with no token", other)

	missing := e.record("missing")
	missing.Seq, missing.Token = 999, 7
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: &missing, State: ichido.Done})
}

func settleLapsed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a", "b")
	got := e.claim(want(2))
	e.clock.Advance(2 * lease)
	e.done(&got[0])
	// A claim for another source may look at the lease, but takes nothing.
	if other := e.claim(want(1, "other")); len(other) != 0 {
		t.Fatalf("claimed %v", keys(other))
	}
	e.done(&got[1])
	for _, r := range got {
		r := e.get(r)
		e.same("state and deaths", []any{ichido.Done, 0}, []any{r.State, r.Deaths})
	}
}

func settleEach(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept(numbered("k", 6)...)
	got := e.claim(want(6))
	e.dead(&got[2])
	var all []ichido.Settlement
	for i := range got {
		all = append(all, ichido.Settlement{Record: &got[i], State: ichido.Done, Outcome: ichido.Applied})
	}
	all[4].Record = &ichido.Record{Hash: got[4].Hash, Seq: got[4].Seq, Token: got[4].Token + 2}
	all[5].State, all[5].Cause = ichido.Pending, "again"
	errs, err := e.Queue.Settle(e.ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	var lost []int
	for i, err := range errs {
		if errors.Is(err, ichido.ErrLeaseLost) {
			lost = append(lost, i)
		} else if err != nil {
			t.Errorf("settlement %d: %v", i, err)
		}
	}
	e.same("lost", []int{2, 4}, lost)
	var states []ichido.State
	for _, r := range e.all() {
		states = append(states, r.State)
	}
	e.same("states", []ichido.State{ichido.Done, ichido.Done, ichido.Dead, ichido.Done, ichido.Claimed, ichido.Pending}, states)
}

func settleCause(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, cause := range []string{"plain", strings.Repeat("x", 1000), strings.Repeat("一", 200), "a\x00b\nc\x1b[31m", "bad \xff utf-8"} {
		e.accept(cause)
		r := e.claim1()
		e.settle(nil, ichido.Settlement{Record: r, State: ichido.Dead, Cause: cause})
		got := e.get(*r).Cause
		if len(got) > 256 || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n\x1b") || got == "" {
			t.Errorf("cause %q is kept as %q", cause, got)
		}
		if cause == "plain" && got != cause {
			t.Errorf("cause %q is kept as %q", cause, got)
		}
	}
}

func settleConfirmed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	state := []byte("{\"done\":true,\"nul\":\"\x00\xff\"}")
	for _, s := range []ichido.Settlement{
		{State: ichido.Done, Outcome: ichido.Applied},
		{State: ichido.Pending, Cause: "failed", After: time.Hour},
	} {
		e.accept(string(s.State))
		s.Record, s.Confirmed = e.claim1(), state
		e.settle(nil, s)
		e.same("confirmed", state, e.get(*s.Record).Confirmed)
	}
	e.clock.Advance(time.Hour)
	r := e.claim1()
	e.same("confirmed, in the next claim", state, r.Confirmed)
	e.done(r)
	e.same("confirmed, after a settle without any", state, e.get(*r).Confirmed)
}

func settleDeaths(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	back := ichido.Settlement{State: ichido.Pending, GiveBack: true, Cause: "draining"}
	for _, c := range []struct {
		name string
		ends []ichido.Settlement
		want int
	}{
		{"tried again", []ichido.Settlement{{State: ichido.Pending, Cause: "failed"}}, 0},
		{"given back", []ichido.Settlement{back}, 2},
		{"given back, then tried again", []ichido.Settlement{back, {State: ichido.Pending}}, 0},
		{"done", []ichido.Settlement{{State: ichido.Done, Outcome: ichido.Applied}}, 2},
		{"dead", []ichido.Settlement{{State: ichido.Dead, Cause: "gave up"}}, 2},
		{"quarantined", []ichido.Settlement{{State: ichido.Quarantined, Cause: "unreadable"}}, 2},
	} {
		r := e.accept(c.name)[0]
		e.die(1)
		e.die(1)
		for _, end := range c.ends {
			end.Record = e.claim1()
			e.settle(nil, end)
		}
		e.same("deaths of what is "+c.name, c.want, e.get(r).Deaths)
		if e.get(r).State == ichido.Pending {
			last := e.claim1()
			e.same("deaths at the next claim of what is "+c.name, c.want, last.Deaths)
			e.done(last)
		}
	}
	// Many that end alike, one of them late.
	records := e.accept("x", "y", "z")
	e.die(3)
	var got []ichido.Record
	for range 3 { // one at a time
		got = append(got, *e.claim1())
	}
	e.Queue.Mark(&got[0], true)
	e.extend(nil, &got[1], 3*lease)
	e.clock.Advance(lease)
	if other := e.claim(want(1, "other")); len(other) != 0 {
		t.Fatalf("claimed %v", keys(other))
	}
	e.same("deaths of the one that lapsed", 2, e.get(got[0]).Deaths)
	var all []ichido.Settlement
	for i := range got {
		all = append(all, ichido.Settlement{Record: &got[i], State: ichido.Pending, Cause: "failed"})
	}
	errs, err := e.Queue.Settle(e.ctx, all)
	if err != nil || errors.Join(errs...) != nil {
		t.Fatalf("settle: %v, %v", errs, err)
	}
	for _, r := range records {
		e.same("attempts and deaths of "+r.Key, []int{2, 0}, []int{e.get(r).Attempts, e.get(r).Deaths})
	}
}

func settleStates(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	for _, state := range []ichido.State{ichido.Claimed, "", "finished"} {
		errs, err := e.Queue.Settle(e.ctx, []ichido.Settlement{{Record: r, State: state}})
		if err == nil && (len(errs) != 1 || errs[0] == nil) {
			t.Errorf("settled to %q", state)
		}
	}
	e.same("state", ichido.Claimed, e.get(*r).State)
	e.done(r)
}

func settleTwice(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, key := range []string{"a", "b"} {
		e.accept(key)
		r := e.claim1()
		first := ichido.Settlement{Record: r, State: ichido.Dead, Cause: "first", Confirmed: []byte("x")}
		second := ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied}
		if key == "b" {
			first.State, first.Confirmed, second.Confirmed = ichido.Pending, nil, []byte("x")
		}
		errs, err := e.Queue.Settle(e.ctx, []ichido.Settlement{first, second, second})
		if err != nil {
			t.Fatal(err)
		}
		if errs[0] != nil || !errors.Is(errs[1], ichido.ErrLeaseLost) || !errors.Is(errs[2], ichido.ErrLeaseLost) {
			t.Errorf("got %v, want nil and ErrLeaseLost", errs)
		}
		e.same("state", first.State, e.get(*r).State)
	}
}
