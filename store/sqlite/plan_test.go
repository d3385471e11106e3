package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
	"ichido.dev/ichido/store/storetest"
)

// TestQueriesUseTheirIndexes makes every call of a store and looks at the plan
// of every statement that was prepared for it. A store keeps millions of
// events and works some: what reads all of them would stop everybody, where it
// is done by the connection that writes.
func TestQueriesUseTheirIndexes(t *testing.T) {
	path := newPath(t)
	db, h := openHooked(t, path)
	everyCall(t, db)
	plain := openDB(t, path)
	h.mu.Lock()
	defer h.mu.Unlock()
	looked := map[bool]int{}
	for query, writes := range h.writer {
		if !isStatement.MatchString(query) || !big.MatchString(query) {
			continue
		}
		looked[writes]++
		for _, wrong := range badPlan(t, plain, query, writes) {
			t.Error(wrong)
		}
	}
	if looked[true] < 30 || looked[false] < 15 {
		t.Errorf("looked at %d statements that write and %d that read: the test misses most", looked[true], looked[false])
	}
}

func TestAScanIsSeen(t *testing.T) {
	_, db := openPath(t, newPath(t), sqlite.Options{})
	for _, query := range []string{
		"UPDATE ichido_events SET state = 0 WHERE deaths > ?",
		"SELECT seq FROM ichido_events WHERE state = 2 AND source = ?",
		"SELECT seq FROM ichido_events WHERE state > 1 AND source = ? ORDER BY outcome",
		"DELETE FROM ichido_claims WHERE owner = ?",
	} {
		if len(badPlan(t, db, query, true)) == 0 {
			t.Errorf("nothing is said of %s", query)
		}
	}
	if wrong := badPlan(t, db, "SELECT min(size) FROM ichido_events INDEXED BY ichido_due WHERE state = 0 AND deaths = 0", false); len(wrong) == 0 {
		t.Error("nothing is said of a query that reads the rows of an index")
	}
	if wrong := badPlan(t, db, "SELECT min(received_at) FROM ichido_events WHERE state = 0 AND due <= ?", false); len(wrong) == 0 {
		t.Error("nothing is said of a reader that scans")
	}
}

var (
	isStatement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)
	parameter   = regexp.MustCompile(`\?(\d*)`)
	big         = regexp.MustCompile(`\bichido_(events|bodies|claims)\b`)
	// SQLite calls the scan for a min or a max a search.
	scan = regexp.MustCompile(`^(SCAN|SEARCH) ichido_(events|bodies|claims)$`)
)

// badPlan returns what is wrong about how a statement finds its rows. A reader
// may go through the table for a filter that no index serves: newest first and
// up to a limit, or to find and count what is to be replayed.
func badPlan(t *testing.T, db *sql.DB, query string, writes bool) (wrong []string) {
	t.Helper()
	n := 0
	for _, p := range parameter.FindAllStringSubmatch(query, -1) {
		if i, err := strconv.Atoi(p[1]); err == nil {
			n = max(n, i)
		} else {
			n++
		}
	}
	args := make([]any, n)
	for i := range args {
		args[i] = 1
	}
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	search := !writes && !strings.Contains(query, "state > 2") &&
		(strings.Contains(query, "ORDER BY seq DESC LIMIT") || strings.HasPrefix(query, "SELECT count(*) FROM (SELECT 1"))
	for rows.Next() {
		var id, parent, notUsed int
		var detail string
		if err := rows.Scan(&id, &parent, &notUsed, &detail); err != nil {
			t.Fatal(err)
		}
		last := detail == "SEARCH ichido_events" && strings.Contains(query, "max(seq)") // the end of the table
		if scan.MatchString(detail) && !search && !last || writes && strings.Contains(detail, "TEMP B-TREE") {
			wrong = append(wrong, fmt.Sprintf("%s: %s (by the writer: %v)", query, detail, writes))
		}
		if strings.Contains(detail, "USING INDEX ichido_due") && !strings.Contains(query, "ORDER BY due, seq LIMIT") {
			wrong = append(wrong, fmt.Sprintf("%s: it reads the row of each event that waits: %s", query, detail))
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return wrong
}

// everyCall opens a store and calls each of its methods, in a way that reaches
// each of its statements.
func everyCall(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx, clock := context.Background(), storetest.NewClock()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := sqlite.Open(ctx, db, sqlite.Options{Clock: clock.Now, MinFree: -1, Capacity: 100, ClaimCapacity: 2, ClaimRetention: time.Hour})
	must(err)
	defer s.Close()
	put := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			_, err := s.Put(ctx, []ichido.Record{record(key)})
			must(err)
		}
	}
	claim := func() []ichido.Record {
		t.Helper()
		got, err := s.Claim(ctx, ichido.Want{Slots: map[string]int{"github": 10}, Lease: time.Minute, Suspects: map[string]bool{"github": true}})
		must(err)
		return got
	}
	put("a", "b", "c", "d", "a")
	kept := record("kept")
	kept.State = ichido.Done
	_, err = s.Put(ctx, []ichido.Record{kept})
	must(err)
	got := claim()
	s.Mark(&got[0], true)
	_, err = s.Extend(ctx, []*ichido.Record{&got[1]}, time.Second)
	must(err)
	clock.Advance(time.Minute)
	got = claim()
	for _, state := range []ichido.State{ichido.Done, ichido.Dead} {
		put(string(state)+"1", string(state)+"2")
		more := claim()
		_, err := s.Settle(ctx, []ichido.Settlement{
			{Record: &more[0], State: state},
			{Record: &more[1], State: state},
			{Record: &got[0], State: state, Confirmed: []byte("x")},
		})
		must(err)
	}
	tx := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error { return nil })
	r := record("tx")
	_, err = tx.Accept(ctx, &r, new(ichido.Event), time.Minute)
	must(err)
	must(tx.Complete(ctx, &got[1], new(ichido.Event), time.Minute))

	claims, err := s.Claims(ctx)
	must(err)
	for _, key := range []string{"a", "b", "a"} {
		v, token, err := claims.Claim(ctx, key)
		must(err)
		if v == ichido.Accepted && key == "a" {
			must(claims.Complete(ctx, key, token))
		}
		clock.Advance(2 * time.Hour)
	}
	_, err = s.Stats(ctx)
	must(err)
	_, err = s.Get(ctx, r.ID())
	must(err)
	for _, f := range filters(clock, r.ID()) {
		_, err = s.List(ctx, f)
		must(err)
		for _, dryRun := range []bool{true, false} {
			if _, err := s.Replay(ctx, f, dryRun); err != nil && f.ID == "" {
				t.Fatal(err)
			}
		}
	}
	_, _, err = s.Purge(ctx, "github", clock.Now(), clock.Now())
	must(err)
}

// filters has each field of a filter alone, and some together.
func filters(clock *storetest.Clock, id string) []ichido.Filter {
	out := []ichido.Filter{
		{},
		{ID: id},
		{Source: "s"},
		{Outcome: "o"},
		{Type: "t"},
		{Key: "k"},
		{Key: "00"},
		{Since: clock.Now()},
		{Until: clock.Now()},
		{Before: 3},
		{Source: "s", Type: "t", Key: "k"},
	}
	for _, state := range []ichido.State{ichido.Pending, ichido.Claimed, ichido.Done, ichido.Dead, ichido.Quarantined} {
		out = append(out, ichido.Filter{State: state}, ichido.Filter{Source: "s", State: state})
	}
	return out
}
