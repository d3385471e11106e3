package storetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func claimsCases() []Case {
	return []Case{
		{"Claims/CompletedIsADuplicate", "B5: the handler of a completed event does not run again", claimsComplete},
		{"Claims/HeldIsInProgress", "B5: a second copy must not run beside the first", claimsHeld},
		{"Claims/ReleasedMayRunAgain", "B6: a failed handler gets the sender's retry", claimsRelease},
		{"Claims/NeverEvicts", "B7: at capacity a new event is refused, an old one is still a duplicate", claimsFull},
		{"Claims/RunningHaveTheirOwnCap", "B7: hanging handlers must not grow without bound", claimsRunning},
		{"Claims/RetentionEnds", "B7, B11: completed ids are kept for their time, and no longer", claimsRetention},
		{"Claims/OnlyTheTokenCompletesOrReleases", "B8: a late handler must not end another's claim", claimsTokens},
		{"Claims/UnrecordedStaysHeld", "B9: when recording failed after the effect, the effect is not repeated", claimsUnrecorded},
		{"Claims/NeverEndByTime", "B10: a claim does not expire while its handler runs", claimsTime},
		{"Claims/OneOfManyIsAccepted", "B8: the claim is one atomic step", claimsSimultaneous},
		{"Claims/HeldAreListed", "B10: an operator must see what a dead owner left", claimsListed},
	}
}

// take claims a key and fails unless that gives the verdict wanted.
func (e *env) take(want ichido.Verdict, key string) (token string) {
	e.Helper()
	v, token, err := e.Claims.Claim(e.ctx, key)
	if err != nil {
		e.Fatalf("claim %q: %v", key, err)
	}
	if v != want || (v == ichido.Accepted) != (token != "") {
		e.Fatalf("claim %q: %v with token %q, want %v", key, v, token, want)
	}
	return token
}

func (e *env) complete(want error, key, token string) {
	e.Helper()
	if err := e.Claims.Complete(e.ctx, key, token); !errors.Is(err, want) {
		e.Fatalf("complete %q: %v, want %v", key, err, want)
	}
}

func (e *env) release(want error, key, token string) {
	e.Helper()
	if err := e.Claims.Release(e.ctx, key, token); !errors.Is(err, want) {
		e.Fatalf("release %q: %v, want %v", key, err, want)
	}
}

func claimsComplete(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.complete(nil, "a", e.take(ichido.Accepted, "a"))
	e.take(ichido.Duplicate, "a")
	e.take(ichido.Accepted, "b")
	for _, key := range []string{"", "A", "一度", "'; --", "a\nb"} { // not the same as any other
		e.complete(nil, key, e.take(ichido.Accepted, key))
		e.take(ichido.Duplicate, key)
	}
}

func claimsHeld(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	token := e.take(ichido.Accepted, "a")
	e.take(ichido.InProgress, "a")
	e.complete(nil, "a", token)
	e.take(ichido.Duplicate, "a")
}

func claimsRelease(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	first := e.take(ichido.Accepted, "a")
	e.release(nil, "a", first)
	second := e.take(ichido.Accepted, "a")
	if first == second {
		t.Error("the second claim has the token of the first")
	}
	e.complete(nil, "a", second)
	e.release(ichido.ErrLeaseLost, "a", second)
	e.take(ichido.Duplicate, "a")
}

func claimsFull(t testing.TB, open Open) {
	e := start(t, open, Setup{ClaimCapacity: 3, ClaimRetention: time.Hour})
	for _, key := range []string{"a", "b", "c"} {
		e.complete(nil, key, e.take(ichido.Accepted, key))
		e.clock.Advance(time.Minute)
	}
	e.take(ichido.Full, "d")
	for _, key := range []string{"a", "b", "c"} {
		e.take(ichido.Duplicate, key)
	}
	e.clock.Advance(57 * time.Minute) // a is past its retention, b is not
	e.complete(nil, "d", e.take(ichido.Accepted, "d"))
	e.take(ichido.Full, "e")
	e.take(ichido.Duplicate, "b")
}

func claimsRunning(t testing.TB, open Open) {
	e := start(t, open, Setup{ClaimRunning: 2})
	token := e.take(ichido.Accepted, "a")
	e.take(ichido.Accepted, "b")
	e.take(ichido.Full, "c")
	e.take(ichido.InProgress, "b")
	e.complete(nil, "a", token)
	token = e.take(ichido.Accepted, "c")
	e.take(ichido.Full, "d")
	e.release(nil, "c", token)
	e.take(ichido.Accepted, "d")
}

func claimsRetention(t testing.TB, open Open) {
	e := start(t, open, Setup{ClaimRetention: time.Hour})
	e.complete(nil, "a", e.take(ichido.Accepted, "a"))
	e.clock.Advance(time.Hour - time.Millisecond)
	e.take(ichido.Duplicate, "a")
	e.clock.Advance(time.Millisecond)
	e.take(ichido.Accepted, "a")
}

func claimsTokens(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	token := e.take(ichido.Accepted, "a")
	other := e.take(ichido.Accepted, "b")
	for _, wrong := range []string{"", "x", other, token + " "} {
		e.complete(ichido.ErrLeaseLost, "a", wrong)
		e.release(ichido.ErrLeaseLost, "a", wrong)
	}
	e.complete(ichido.ErrLeaseLost, "missing", token)
	e.release(ichido.ErrLeaseLost, "missing", token)
	e.take(ichido.InProgress, "a")
	e.release(nil, "a", token)
	again := e.take(ichido.Accepted, "a")
	e.complete(ichido.ErrLeaseLost, "a", token) // of the first claim
	e.release(ichido.ErrLeaseLost, "a", token)
	e.complete(nil, "a", again)
	e.complete(ichido.ErrLeaseLost, "a", again)
}

func claimsUnrecorded(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.take(ichido.Accepted, "a") // and the answer to Complete was lost before it
	e.clock.Advance(24 * 365 * time.Hour)
	e.take(ichido.InProgress, "a")
}

func claimsTime(t testing.TB, open Open) {
	e := start(t, open, Setup{ClaimRetention: time.Hour, ClaimCapacity: 2})
	token := e.take(ichido.Accepted, "a")
	e.clock.Advance(24 * 365 * time.Hour)
	e.complete(nil, "b", e.take(ichido.Accepted, "b"))
	e.take(ichido.Full, "c")
	e.take(ichido.InProgress, "a")
	e.complete(nil, "a", token)
	e.take(ichido.Duplicate, "a")
}

func claimsSimultaneous(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	counts := map[ichido.Verdict]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			v, _, err := e.Claims.Claim(e.ctx, "a")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			counts[v]++
		})
	}
	wg.Wait()
	e.same("verdicts", map[ichido.Verdict]int{ichido.Accepted: 1, ichido.InProgress: 199}, counts)
}

func claimsListed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.same("none", []any{0, []string(nil)}, []any{e.stats().Pending, e.stats().PendingKeys})
	token := e.take(ichido.Accepted, "second")
	e.clock.Advance(-time.Second)
	e.take(ichido.Accepted, "first")
	e.complete(nil, "completed", e.take(ichido.Accepted, "completed"))
	e.same("held", []any{2, []string{"first", "second"}}, []any{e.stats().Pending, e.stats().PendingKeys})
	e.release(nil, "second", token)
	e.same("held after the release", []any{1, []string{"first"}}, []any{e.stats().Pending, e.stats().PendingKeys})
	for _, key := range numbered("k", 150) {
		e.clock.Advance(time.Second)
		e.take(ichido.Accepted, key)
	}
	e.same("number of many", 151, e.stats().Pending)
	e.same("the oldest of many", append([]string{"first"}, numbered("k", 99)...), e.stats().PendingKeys)
}
