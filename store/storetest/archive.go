package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func archiveCases() []Case {
	return []Case{
		{"Get/UnknownEvent", "an operator mistypes", getUnknown},
		{"List/NewestFirstInPages", "a page must not repeat or leave out what another one shows", listPages},
		{"List/EveryFilter", "finding one event among millions is the point of keeping them", listFilters},
		{"List/WithoutBodies", "a list of bodies of 25 MiB does not fit", listBodies},
		{"Stats/CountsAndOldest", "the age of the oldest event says that workers are stuck", statsCounts},
	}
}

func getUnknown(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	missing := e.record("b")
	for _, id := range []string{missing.ID(), "", "ev_", "ev_" + string(make([]byte, 26)), "x' OR 1=1 --"} {
		if _, err := e.Archive.Get(e.ctx, id); !errors.Is(err, ichido.ErrNotFound) {
			t.Errorf("get %q: %v, want ErrNotFound", id, err)
		}
	}
}

func listPages(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	all := numbered("k", 120)
	e.accept(all...)
	newest := slices.Clone(all)
	slices.Reverse(newest)
	e.same("default limit", newest[:50], keys(e.list(ichido.Filter{})))
	var got []string
	f := ichido.Filter{Limit: 25}
	for {
		page := e.list(f)
		if len(page) == 0 {
			break
		}
		got = append(got, keys(page)...)
		f.Before = page[len(page)-1].Seq
		e.accept("new" + page[0].Key) // must not shift the pages
	}
	e.same("pages", newest, got)
}

func listFilters(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	t0 := e.clock.Now()
	a := e.accept("a")[0]
	e.done(e.claim1())
	e.clock.Advance(time.Second)
	e.accept("b")
	e.dead(e.claim1())
	e.clock.Advance(time.Second)
	c := NewRecord("stripe", "c", "c", e.clock.Now())
	c.Type = "charge"
	e.put(ichido.Accepted, c)
	e.clock.Advance(time.Second)
	e.accept("d")
	for _, f := range []struct {
		ichido.Filter
		want []string
	}{
		{ichido.Filter{}, []string{"d", "c", "b", "a"}},
		{ichido.Filter{ID: a.ID()}, []string{"a"}},
		{ichido.Filter{ID: "ev_nonsense"}, []string{}},
		{ichido.Filter{ID: a.ID(), Source: "stripe"}, []string{}},
		{ichido.Filter{Source: "stripe"}, []string{"c"}},
		{ichido.Filter{Source: "Stripe"}, []string{}},
		{ichido.Filter{State: ichido.Pending}, []string{"d", "c"}},
		{ichido.Filter{State: ichido.Dead}, []string{"b"}},
		{ichido.Filter{State: ichido.Claimed}, []string{}},
		{ichido.Filter{State: "unknown"}, []string{}},
		{ichido.Filter{Outcome: ichido.Applied}, []string{"a"}},
		{ichido.Filter{Type: "charge"}, []string{"c"}},
		{ichido.Filter{Key: "b"}, []string{"b"}},
		{ichido.Filter{Key: "ff"}, []string{}},
		{ichido.Filter{Since: t0.Add(time.Second)}, []string{"d", "c", "b"}},
		{ichido.Filter{Until: t0.Add(time.Second)}, []string{"a"}},
		{ichido.Filter{Since: t0.Add(time.Second), Until: t0.Add(3 * time.Second)}, []string{"c", "b"}},
		{ichido.Filter{Since: t0.Add(time.Second + time.Microsecond)}, []string{"d", "c"}},
		{ichido.Filter{Source: "github", State: ichido.Pending, Limit: 5}, []string{"d"}},
		{ichido.Filter{Limit: 2}, []string{"d", "c"}},
	} {
		e.same("filter", f.want, keys(e.list(f.Filter)))
		if t.Failed() {
			t.Fatalf("filter %+v", f.Filter)
		}
	}
}

func listBodies(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.accept("a")
	r := e.claim1()
	e.settle(nil, ichido.Settlement{Record: r, State: ichido.Done, Outcome: ichido.Applied, Confirmed: []byte("x")})
	got := e.list(ichido.Filter{})[0]
	if got.Body != nil || got.Header != nil || got.Confirmed != nil {
		t.Error("a listed record has a body, headers or fetched state")
	}
	full := e.get(*r)
	full.Body, full.Header, full.Confirmed = nil, nil, nil
	e.same("but for that", full, got)
}

func statsCounts(t testing.TB, open Open) {
	e := start(t, open, Setup{})
	e.same("of an empty store", ichido.Stats{Counts: map[string]map[ichido.State]int{}}, e.stats())
	e.accept("a", "b", "c", "d")
	got := e.claim(want(3))
	e.done(&got[0])
	e.retry(&got[1], time.Hour)
	first := e.clock.Now()
	e.clock.Advance(time.Second)
	e.put(ichido.Accepted, NewRecord("stripe", "e", "e", e.clock.Now()))
	e.same("counts", ichido.Stats{
		Counts: map[string]map[ichido.State]int{
			"github": {ichido.Done: 1, ichido.Pending: 2, ichido.Claimed: 1},
			"stripe": {ichido.Pending: 1},
		},
		Oldest: first,
	}, e.stats())
	for _, r := range e.claim(want(10)) {
		e.done(&r)
	}
	e.same("oldest that is due", e.clock.Now(), e.stats().Oldest)
	for _, r := range e.claim(want(10, "stripe")) {
		e.done(&r)
	}
	e.same("none is due", time.Time{}, e.stats().Oldest)
	e.clock.Advance(time.Hour)
	e.same("the retry is due", first, e.stats().Oldest)
}
