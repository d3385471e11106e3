package storetest

import (
	"errors"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func replayCases() []Case {
	return []Case{
		{"Replay/MakesPendingAgain", "an operator has fixed the handler", replayOne},
		{"Replay/DryRunOnlyCounts", "an operator wants to know before", replayDry},
		{"Replay/OnlyDoneAndDeadWithABody", "an event in work would be done twice, and one without a body cannot be done", replaySkips},
		{"Replay/SaysWhyNot", "0 of 1 is no answer", replayWhy},
		{"Replay/WhatWasPutDone", "the body of an inline event is kept for this", replayKept},
		{"Replay/Filter", "a bad deployment spoils thousands of events at once", replayFilter},
	}
}

func (e *env) replay(f ichido.Filter, dryRun bool) int {
	e.Helper()
	n, err := e.Archive.Replay(e.ctx, f, dryRun)
	if err != nil {
		e.Fatalf("replay: %v", err)
	}
	return n
}

func replayOne(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.accept("a")[0]
	for range 3 { // three deaths and a dead letter
		e.claim1()
		e.clock.Advance(lease)
	}
	e.dead(e.claim1())
	select {
	case <-e.Queue.Ready():
	default:
	}
	e.clock.Advance(time.Second)
	e.same("replayed", 1, e.replay(ichido.Filter{ID: r.ID()}, false))
	want := r
	want.Seq, want.Size, want.Due, want.Replays = 1, int64(len(r.Body)), e.clock.Now(), 1
	e.same("as new", want, e.get(r))
	select {
	case <-e.Queue.Ready():
	default:
		t.Error("Ready was not signalled")
	}
	got := e.claim1()
	e.same("attempt and deaths", []int{1, 0}, []int{got.Attempts, got.Deaths})
	e.done(got)
	e.put(ichido.Duplicate, r)
	e.same("replayed again", 1, e.replay(ichido.Filter{ID: r.ID()}, false))
	e.same("replays", 2, e.get(r).Replays)
}

func replayDry(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.accept("a")[0]
	e.done(e.claim1())
	before := e.get(r)
	e.same("would be replayed", []int{1, 1}, []int{e.replay(ichido.Filter{}, true), e.replay(ichido.Filter{ID: r.ID()}, true)})
	e.same("the event", before, e.get(r))
}

func replaySkips(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("done")
	e.done(e.claim1())
	e.accept("dead")
	e.dead(e.claim1())
	e.accept("quarantined")
	e.settle(nil, ichido.Settlement{Record: e.claim1(), State: ichido.Quarantined})
	e.accept("claimed")
	e.claim1()
	e.accept("pending")
	e.put(ichido.Accepted, NewRecord("purged", "purged", "x", e.clock.Now()))
	got := e.claim(want(1, "purged"))
	e.done(&got[0])
	e.clock.Advance(time.Second)
	e.purge("purged", e.clock.Now(), time.Time{})
	e.same("would be replayed", 2, e.replay(ichido.Filter{}, true))
	e.same("replayed", 2, e.replay(ichido.Filter{}, false))
	states := map[string]ichido.State{}
	for _, r := range e.all() {
		states[r.Key] = r.State
	}
	e.same("states", map[string]ichido.State{
		"done": ichido.Pending, "dead": ichido.Pending, "pending": ichido.Pending,
		"quarantined": ichido.Quarantined, "claimed": ichido.Claimed, "purged": ichido.Done,
	}, states)
}

func replayWhy(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	pending := e.accept("pending")[0]
	purged := NewRecord("purged", "purged", "x", e.clock.Now())
	e.put(ichido.Accepted, purged)
	got := e.claim(want(1, "purged"))
	e.done(&got[0])
	e.clock.Advance(time.Second)
	e.purge("purged", e.clock.Now(), time.Time{})
	split := e.record("split")
	split.State, split.Outcome = ichido.Done, ichido.Split
	e.put(ichido.Accepted, split)
	missing := e.record("missing")
	for _, dryRun := range []bool{true, false} {
		for id, want := range map[string]error{
			pending.ID(): ichido.ErrNotReplayable,
			split.ID():   ichido.ErrNotReplayable, // its events can be
			purged.ID():  ichido.ErrBodyPurged,
			missing.ID(): ichido.ErrNotFound,
			"nonsense":   ichido.ErrNotFound,
		} {
			if n, err := e.Archive.Replay(e.ctx, ichido.Filter{ID: id}, dryRun); n != 0 || !errors.Is(err, want) {
				t.Errorf("replay %s: %d, %v, want %v", id, n, err, want)
			}
		}
	}
	e.same("none of many", 0, e.replay(ichido.Filter{Source: "nobody"}, false))
}

func replayKept(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	r.State, r.Outcome = ichido.Done, ichido.Applied
	e.put(ichido.Accepted, r)
	e.same("replayed", 1, e.replay(ichido.Filter{ID: r.ID()}, false))
	got := e.claim1()
	e.same("body and attempt", []any{string(r.Body), string(r.Header), 1}, []any{string(got.Body), string(got.Header), got.Attempts})
	e.done(got)
	e.same("replayed with all", 1, e.replay(ichido.Filter{}, false))
}

func replayFilter(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept(numbered("k", 1203)...)
	for _, r := range e.claimAll("github", 1203) {
		if r.Seq%3 == 0 {
			e.dead(&r)
		} else {
			e.done(&r)
		}
	}
	e.same("would be, of the dead", 401, e.replay(ichido.Filter{State: ichido.Dead}, true))
	e.same("would be, at most 7", 7, e.replay(ichido.Filter{State: ichido.Dead, Limit: 7}, true))
	e.same("at most 7", 7, e.replay(ichido.Filter{State: ichido.Dead, Limit: 7}, false))
	e.same("the other dead", 394, e.replay(ichido.Filter{State: ichido.Dead}, false))
	e.same("all others", 802, e.replay(ichido.Filter{}, false))
	e.same("pending", map[ichido.State]int{ichido.Pending: 1203}, e.stats().Counts["github"])
}
