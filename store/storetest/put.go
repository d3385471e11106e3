package storetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func putCases() []Case {
	return []Case{
		{"Put/NewRecordIsKeptExactly", "what a handler gets must be what the proof said", putKeeps},
		{"Put/BodiesAreBinaryExact", "a signature covers bytes, and a NUL in a real diff breaks text columns", putBinary},
		{"Put/TextsAreExact", "keys and types are chosen by senders", putTexts},
		{"Put/KeyThatIsTheFingerprint", "senders without a signed id are known by their bytes, and stores may save the space", putDigestKey},
		{"Put/VerdictInEveryState", "a duplicate that is forgotten in one state is an effect done twice, a conflict that is not seen there is a forged event", putVerdicts},
		{"Put/RepeatsInOneCallAreDecidedInOrder", "senders batch, and requests share a commit", putRepeats},
		{"Put/SameKeyOfAnotherSourceIsAnotherEvent", "one tenant must not make another's event a duplicate", putSources},
		{"Put/SimultaneousCopiesAreOneEvent", "senders retry while the first copy is still under way", putSimultaneous},
		{"Put/KeptToBeSeenIsNeverClaimed", "quarantined bytes and inline events are stored to be shown", putKept},
		{"Put/PurgedKeepsTheKeyAlone", "an inline event is known again although nobody wanted its body", putPurged},
		{"Put/ClaimedBelongsToItsCaller", "a worker in the process that accepts starts an event without claiming it first", putClaimed},
		{"Put/ClaimedNeedsATokenAndALease", "a claim without a token could never be settled", putTokenless},
		{"Put/FullNeverEvicts", "an evicted key is a replayed webhook", putFull},
		{"Put/BuffersMayBeReused", "request bodies are pooled", putBuffers},
		{"Put/CopiesAreCounted", "an operator wants to see that a sender repeats itself", putCopies},
		{"Put/ReadyIsSignalled", "an idle worker would sleep on otherwise", putReady},
		{"Put/EndedContextStoresNothing", "a request that is gone needs no event", putContext},
	}
}

func putKeeps(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	r.Secret, r.Strength, r.TypeSigned = 300, ichido.Weak, false
	e.put(ichido.Accepted, r)

	want := r
	want.Seq, want.Size, want.Due = 1, int64(len(r.Body)), e.clock.Now()
	e.same("stored", want, e.get(r))

	bare := NewRecord("github", "bare", "", e.clock.Now())
	bare.Time, bare.Header, bare.Type, bare.Scheme, bare.Strength, bare.State = time.Time{}, nil, "", "", ichido.Authenticated, ""
	e.put(ichido.Accepted, bare)
	got := e.get(bare)
	if !got.Time.IsZero() || len(got.Header) != 0 || got.State != ichido.Pending || got.Strength != ichido.Authenticated {
		t.Errorf("a record without optional facts came back as %+v", got)
	}
}

func putBinary(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	bodies := map[string][]byte{
		"every byte":    every,
		"NUL":           {0},
		"NULs":          make([]byte, 4096),
		"invalid UTF-8": {0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80},
		"empty":         {},
		"nil":           nil,
		"1 MiB":         bytes.Repeat(every, 4096),
	}
	for key, body := range bodies {
		r := e.record(key)
		r.Body, r.Header = body, append([]byte("X: "), every...)
		e.put(ichido.Accepted, r)
	}
	for _, r := range e.claim(want(len(bodies))) {
		if !bytes.Equal(r.Body, bodies[r.Key]) || !bytes.Equal(r.Header[3:], every) {
			t.Errorf("%s: the claimed body or header differs", r.Key)
		}
		if got := e.get(r); !bytes.Equal(got.Body, bodies[r.Key]) || got.Size != int64(len(bodies[r.Key])) {
			t.Errorf("%s: the body differs", r.Key)
		}
	}
}

func putTexts(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, text := range []string{"'; DROP TABLE x; --", `"quoted"`, "一度", "line\nbreak\ttab", "%s %d", strings.Repeat("long", 200), " spaces ", "\u202e"} {
		r := NewRecord(text, text, text, e.clock.Now())
		r.Type, r.Scheme = text, text
		e.put(ichido.Accepted, r)
		got := e.get(r)
		e.same("texts", []string{text, text, text, text}, []string{got.Source, got.Key, got.Type, got.Scheme})
		if n := len(e.list(ichido.Filter{Source: text, Key: text, Type: text})); n != 1 {
			t.Errorf("%q: found %d events by their texts, want 1", text, n)
		}
		if n := len(e.claim(want(1, text))); n != 1 {
			t.Errorf("%q: claimed %d events of that source, want 1", text, n)
		}
	}
}

func putDigestKey(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("x")
	r.Key = hex.EncodeToString(r.Fingerprint[:])
	upper := NewRecord("github", "y", "another body", e.clock.Now())
	upper.Key = strings.ToUpper(hex.EncodeToString(upper.Fingerprint[:]))
	e.put(ichido.Accepted, r, upper)
	e.same("key", r.Key, e.get(r).Key)
	e.same("key in capitals", upper.Key, e.get(upper).Key)
	e.same("found by key", []string{r.Key}, keys(e.list(ichido.Filter{Key: r.Key})))
	e.same("found by key in capitals", []string{upper.Key}, keys(e.list(ichido.Filter{Key: upper.Key})))
}

func putVerdicts(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	// The events are made one after the other, so that each claim finds one.
	one := func(key string, then func(r *ichido.Record)) ichido.Record {
		r := e.accept(key)[0]
		if then != nil {
			then(e.claim1())
		}
		return r
	}
	kept := func(key string, state ichido.State) ichido.Record {
		r := e.record(key)
		r.State = state
		e.put(ichido.Accepted, r)
		return r
	}
	events := []ichido.Record{
		one("claimed", func(*ichido.Record) {}),
		one("done", e.done),
		one("dead", e.dead),
		one("quarantined", func(r *ichido.Record) {
			e.settle(nil, ichido.Settlement{Record: r, State: ichido.Quarantined, Cause: "unreadable"})
		}),
		one("retried", func(r *ichido.Record) { e.retry(r, time.Hour) }),
		kept("kept done", ichido.Done),
		kept("kept quarantined", ichido.Quarantined),
		NewRecord("purged", "purged", "purged", e.clock.Now()),
	}
	e.put(ichido.Accepted, events[len(events)-1])
	got := e.claim(want(1, "purged"))
	e.done(&got[0])
	e.clock.Advance(time.Second)
	if n, _ := e.purge("purged", e.clock.Now(), time.Time{}); n != 1 {
		t.Fatalf("purged %d bodies, want 1", n)
	}
	events = append(events, one("pending", nil))
	for _, r := range events {
		before := e.get(r)
		e.put(ichido.Duplicate, r)
		forged := r
		forged.Fingerprint[31] ^= 1
		forged.Body, forged.Type = []byte("forged"), "forged"
		e.put(ichido.Conflict, forged)
		before.Copies++
		e.same(r.Key+" after a duplicate and a conflict", before, e.get(r))
	}
}

func putRepeats(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	a, b := e.record("a"), e.record("b")
	a2 := a
	a2.Fingerprint[0] ^= 1
	e.accept("old")
	old := e.record("old")
	old2 := old
	old2.Fingerprint[0] ^= 1
	got, err := e.Queue.Put(e.ctx, []ichido.Record{a, a, a2, b, old2, old, a})
	if err != nil {
		t.Fatal(err)
	}
	const A, D, C = ichido.Accepted, ichido.Duplicate, ichido.Conflict
	e.same("verdicts", []ichido.Verdict{A, D, C, A, C, D, D}, got)
	e.same("order of acceptance", []string{"old", "a", "b"}, keys(e.all()))
}

func putSources(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	a := NewRecord("a", "same", "one body", e.clock.Now())
	b := NewRecord("b", "same", "another body", e.clock.Now())
	e.put(ichido.Accepted, a, b)
	e.put(ichido.Duplicate, a, b)
}

func putSimultaneous(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, key := range numbered("k", 10) {
		r := e.record(key)
		forged := r
		forged.Fingerprint[0] ^= 1
		counts := map[ichido.Verdict]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 200 {
			copied := r
			if i%10 == 9 {
				copied = forged
			}
			wg.Go(func() {
				v, err := e.Queue.Put(e.ctx, []ichido.Record{copied})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				counts[v[0]]++
			})
		}
		wg.Wait()
		first := e.get(r)
		sameAs, others := 180, 20
		if first.Fingerprint == forged.Fingerprint {
			sameAs, others = 20, 180
		}
		want := map[ichido.Verdict]int{ichido.Accepted: 1, ichido.Duplicate: sameAs - 1, ichido.Conflict: others}
		e.same("verdicts of 200 copies", want, counts)
	}
}

func putKept(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	seen, bad := e.record("seen"), e.record("bad")
	seen.State, seen.Outcome = ichido.Done, ichido.Split
	bad.State, bad.Cause = ichido.Quarantined, "payload_unreadable\n"+strings.Repeat("x", 300)
	e.put(ichido.Accepted, seen, bad)
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v", keys(got))
	}
	got := e.get(seen)
	e.same("done", []any{ichido.Done, ichido.Split, e.clock.Now()}, []any{got.State, got.Outcome, got.SettledAt})
	got = e.get(bad)
	e.same("quarantined", []any{ichido.Quarantined, e.clock.Now(), 256}, []any{got.State, got.SettledAt, len(got.Cause)})
}

func putPurged(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, key := range []string{"without", "with"} {
		r := e.record(key)
		r.State, r.Outcome, r.Purged = ichido.Done, ichido.Applied, true
		if key == "without" {
			r.Header, r.Body = nil, nil
		}
		e.put(ichido.Accepted, r)
		want := r
		want.Header, want.Body = nil, nil
		want.Seq, want.Size, want.SettledAt = e.get(r).Seq, int64(len(r.Body)), e.clock.Now()
		e.same("stored "+key+" a body", want, e.get(r))
		for _, dryRun := range []bool{true, false} {
			if n, err := e.Archive.Replay(e.ctx, ichido.Filter{ID: r.ID()}, dryRun); n != 0 || !errors.Is(err, ichido.ErrBodyPurged) {
				t.Errorf("replay: %d, %v, want ErrBodyPurged", n, err)
			}
		}
		e.put(ichido.Duplicate, r)
		forged := r
		forged.Fingerprint[0] ^= 1
		e.put(ichido.Conflict, forged)
	}
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v", keys(got))
	}
	e.clock.Advance(time.Second)
	n, k := e.purge("github", e.clock.Now(), e.clock.Now())
	e.same("bodies and keys that are purged", []int{0, 2}, []int{n, k})
	for _, state := range []ichido.State{"", ichido.Pending, ichido.Claimed, ichido.Dead, ichido.Quarantined} {
		r := e.record("never")
		r.State, r.Purged, r.Token, r.Lease = state, true, 7, lease
		if v, err := e.Queue.Put(e.ctx, []ichido.Record{r}); err == nil {
			t.Errorf("a %q event without a body: %v", state, v)
		}
	}
}

func putClaimed(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	records := []ichido.Record{e.record("a"), e.record("b")}
	for i := range records {
		records[i].State, records[i].Token, records[i].Lease = ichido.Claimed, 42, lease
	}
	e.put(ichido.Accepted, records...)
	got := e.get(records[0])
	e.same("what is stored", []any{ichido.Claimed, 1, e.clock.Now().Add(lease), uint64(42), records[0].Seq},
		[]any{got.State, got.Attempts, got.Due, got.Token, got.Seq})
	if got := e.claim(want(10)); len(got) != 0 {
		t.Errorf("claimed %v from under their claim", keys(got))
	}
	e.put(ichido.Duplicate, records[0])
	wrong := records[0]
	wrong.Token = 43
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: &wrong, State: ichido.Done})
	e.done(&records[0])
	e.extend(nil, &records[1], 2*lease)
	e.clock.Advance(2 * lease)
	r := e.claim1()
	e.same("after the lease", []any{"b", 1, 0}, []any{r.Key, r.Attempts, r.Deaths})
	e.settle(ichido.ErrLeaseLost, ichido.Settlement{Record: &records[1], State: ichido.Done})
	e.done(r)
}

func putTokenless(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for _, r := range []ichido.Record{{Lease: lease}, {Token: 42}, {Token: 42, Lease: -1}} {
		claimed := e.record("a")
		claimed.State, claimed.Token, claimed.Lease = ichido.Claimed, r.Token, r.Lease
		if v, err := e.Queue.Put(e.ctx, []ichido.Record{e.record("b"), claimed}); err == nil {
			t.Errorf("token %d, lease %v: %v", r.Token, r.Lease, v)
		}
	}
	e.same("stored", []string{}, keys(e.all()))
}

func putFull(t testing.TB, open Open) {
	e := start(t, open, Setup{Capacity: 3})
	first := e.accept("a", "b", "c")
	e.put(ichido.Full, e.record("d"))
	e.put(ichido.Duplicate, first...)
	forged := first[0]
	forged.Fingerprint[0] ^= 1
	e.put(ichido.Conflict, forged)
	got, err := e.Queue.Put(e.ctx, []ichido.Record{e.record("e"), first[1], e.record("f")})
	if err != nil {
		t.Fatal(err)
	}
	e.same("mixed", []ichido.Verdict{ichido.Full, ichido.Duplicate, ichido.Full}, got)
	e.same("kept", []string{"a", "b", "c"}, keys(e.all()))

	for _, r := range e.claim(want(1)) {
		e.done(&r)
	}
	e.put(ichido.Full, e.record("d")) // a done event keeps its place until it is purged
	e.clock.Advance(time.Second)
	e.purge("github", e.clock.Now(), e.clock.Now())
	got, err = e.Queue.Put(e.ctx, []ichido.Record{e.record("d"), e.record("e")})
	if err != nil {
		t.Fatal(err)
	}
	e.same("after a purge", []ichido.Verdict{ichido.Accepted, ichido.Full}, got)
}

func putBuffers(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.record("a")
	want := string(r.Body) + string(r.Header)
	e.put(ichido.Accepted, r)
	clear(r.Body)
	clear(r.Header)
	got := e.get(r)
	e.same("after the buffers were reused", want, string(got.Body)+string(got.Header))
	clear(got.Body)
	claimed := e.claim1()
	e.same("claimed after that", want, string(claimed.Body)+string(claimed.Header))
}

func putCopies(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	r := e.accept("a")[0]
	e.put(ichido.Duplicate, r, r)
	e.put(ichido.Duplicate, r)
	e.same("copies", 3, e.get(r).Copies)
	e.same("copies in a claim", 3, e.claim1().Copies)
}

func putReady(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	for range 3 { // a signal that nobody takes must not block
		e.accept(numbered("k", 3)...)
		select {
		case <-e.Queue.Ready():
		default:
			t.Fatal("Ready was not signalled")
		}
		for _, r := range e.claim(want(10)) {
			e.done(&r)
		}
		e.clock.Advance(time.Second)
		e.purge("github", e.clock.Now(), e.clock.Now())
	}
}

func putContext(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := e.Queue.Put(ctx, []ichido.Record{e.record("a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if got := e.all(); len(got) != 0 {
		t.Errorf("stored %v", keys(got))
	}
}
