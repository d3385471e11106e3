package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/view"
	"ichido.dev/ichido/store/memory"
)

// operator asks the admin API of a gateway over a store with three done and
// two dead events.
type operator struct {
	t       *testing.T
	store   *memory.Store
	handler http.Handler
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t, store: memory.New(memory.Options{})}
	for i := range 5 {
		state, outcome := ichido.Done, ichido.Applied
		if i >= 3 {
			state, outcome = ichido.Dead, ""
		}
		rec := ichido.Record{Source: "a", Key: fmt.Sprint(i), State: state, Outcome: outcome, ReceivedAt: time.Now(), Body: []byte("{}")}
		copy(rec.Hash[:], rec.Key)
		if _, err := o.store.Put(t.Context(), []ichido.Record{rec}); err != nil {
			t.Fatal(err)
		}
	}
	g := &Gateway{archive: o.store, stock: &stocktaker{archive: o.store}, log: slog.New(slog.DiscardHandler)}
	g.current.Store(&snapshot{adminTokens: [][sha256.Size]byte{sha256.Sum256([]byte(adminToken))}})
	o.handler = g.adminHandler()
	return o
}

// ask sends "METHOD /path" with the token.
func (o *operator) ask(route string, body io.Reader) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(route, " ")
	req := httptest.NewRequest(method, target, body)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	o.handler.ServeHTTP(w, req)
	return w
}

func (o *operator) pending() int {
	stats, err := o.store.Stats(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return stats.Counts["a"][ichido.Pending]
}

// TestUnknownParameterIsRefused: what is not understood must not be left out,
// for without it a replay means more events, or not only to count them.
func TestUnknownParameterIsRefused(t *testing.T) {
	o := newOperator(t)
	for query, detail := range map[string]string{
		"state=done&limit=1&dry_run":             `"dry_run" has no value`,
		"state=done&dry_run=":                    `"dry_run" has no value`,
		"state=done&dry_run=TRUE":                `dry_run must be one of true, false, 1, 0`,
		"state=done&dry_run=yes":                 `dry_run must be one of`,
		"state=done&dryrun=true":                 `"dryrun" is not known; there are id, source, state,`,
		"state=done&dryrun=":                     `"dryrun" is not known`,
		"state=done&dry_run=true;":               `"dry_run" cannot be read`,
		"state=done;dry_run=true":                `"state" cannot be read`,
		"state=done&dry_run=true&dry_run=0":      `"dry_run" is there twice`,
		"state=done&state=dead&dry_run=true":     `"state" is there twice`,
		"state=done&%73tate=dead":                `"state" is there twice`,
		"state=done&dry_run=tr%ue":               `"dry_run" cannot be read`,
		"state=done&dry%run=true":                `"dry%run" cannot be read`,
		"state=done&State=dead":                  `"State" is not known`,
		"soruce=b":                               `"soruce" is not known`,
		"state=done&soruce=b":                    `"soruce" is not known`,
		"state=done&=b":                          `"" is not known`,
		"state=done&" + strings.Repeat("x", 999): `"` + strings.Repeat("x", 64) + `" is not known`,
		"state=":                                 `"state" has no value`,
		"source=a&state=bogus":                   `state must be one of pending, claimed, done, dead, quarantined`,
		"source=a&outcome=bogus":                 `outcome must be one of applied, forwarded, refuted, ignored, split`,
		"id=bogus":                               `id must be`,
		"since=yesterday":                        `since must be a time`,
		"until=2026-01-31T00:00:00+01:00":        `until must be a time`,
		"source=a&before=0":                      `before must be a number`,
		"source=a&before=-1":                     `before must be a number`,
		"source=a&before=99999999999999999999":   `before must be a number`,
		"source=a&limit=0":                       `limit must be a number from 1 to 1000`,
		"source=a&limit=1001":                    `limit must be a number`,
		"source=a&limit=ten":                     `limit must be a number`,
	} {
		for _, route := range []string{"POST /v1/replay", "GET /v1/events"} {
			if route == "GET /v1/events" && strings.Contains(detail, "dry_run") && !strings.Contains(detail, "cannot be read") {
				detail = `"dry_run" is not known`
			}
			refused(t, o.ask(route+"?"+query, nil), route+"?"+query, detail)
		}
	}
	for route, detail := range map[string]string{
		"GET /v1/stats?source=a": `"source" is not known; there are none here`,
		"GET /v1/stats?;":        `";" cannot be read`,
		"GET /v1/events/ev_00000000000000000000000000?body=no": `"body" is not known`,
		"GET /v1/events?dry_run=true":                          `"dry_run" is not known`,
		"POST /v1/replay":                                      "say which events: by id, source,",
		"POST /v1/replay?&":                                    "say which events",
		"POST /v1/replay?dry_run=true":                         "say which events",
		"POST /v1/replay?limit=5":                              "say which events",
		"POST /v1/replay?before=100":                           "say which events",
		"POST /v1/replay?before=100&limit=5&dry_run=false":     "say which events",
	} {
		refused(t, o.ask(route, nil), route, detail)
	}
	for _, route := range []string{"GET /v1/stats", "GET /v1/events", "GET /v1/events/ev_00000000000000000000000000", "POST /v1/replay?state=done"} {
		refused(t, o.ask(route, strings.NewReader("dry_run=true")), route+" with a form", "send no body")
		refused(t, o.ask(route, io.NopCloser(io.LimitReader(nil, 0))), route+" with a body of unknown length", "send no body")
	}
	if n := o.pending(); n != 0 {
		t.Errorf("%d events were replayed", n)
	}
}

func refused(t *testing.T, w *httptest.ResponseRecorder, asked, detail string) {
	t.Helper()
	var answer struct{ Code, Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 400 || answer.Code != "bad_request" || !strings.Contains(answer.Detail, detail) {
		t.Errorf("%s answered %d %s; want 400 with %q", asked, w.Code, w.Body, detail)
	}
}

// TestKnownParametersAreUnderstood in each spelling that is allowed.
func TestKnownParametersAreUnderstood(t *testing.T) {
	id := (&ichido.Record{}).ID()
	for query, want := range map[string]view.Replayed{
		"state=done&dry_run=true":             {DryRun: true, Matched: 3, Events: 3},
		"state=done&dry_run=1":                {DryRun: true, Matched: 3, Events: 3},
		"state=done&dry_run=false":            {Matched: 3, Events: 3},
		"state=done&dry_run=0":                {Matched: 3, Events: 3},
		"&state=dead&":                        {Matched: 2, Events: 2},
		"%73tate=%64ead":                      {Matched: 2, Events: 2},
		"source=a&before=3":                   {Matched: 2, Events: 2},
		"outcome=applied&limit=1":             {Matched: 3, Events: 1},
		"key=4":                               {Matched: 1, Events: 1},
		"since=2000-01-01T00:00:00%2B01:00":   {Matched: 5, Events: 5},
		"until=2000-01-01T00:00:00Z&source=a": {},
		"type=x":                              {},
		"source=b":                            {},
	} {
		o := newOperator(t)
		w := o.ask("POST /v1/replay?"+query, nil)
		var got view.Replayed
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Errorf("%s answered %d %s", query, w.Code, w.Body)
			continue
		}
		replayed := want.Events
		if want.DryRun {
			replayed = 0
		}
		if got.DryRun != want.DryRun || got.Matched != want.Matched || got.Events != want.Events || o.pending() != replayed {
			t.Errorf("%s: %+v and %d pending, want %+v and %d", query, got, o.pending(), want, replayed)
		}
	}
	if w := newOperator(t).ask("POST /v1/replay?id="+id, nil); w.Code != 404 {
		t.Errorf("the id of no event answered %d %s", w.Code, w.Body)
	}
}

// What a sender chose may end in the terminal of whoever asks.
func TestAnswersOfTheAdminAPIPrint(t *testing.T) {
	w := httptest.NewRecorder()
	reply(w, map[string]string{"key": "a\u009b2Jb\x7f\u202e"})
	if got, want := w.Body.String(), `{"key":"a\u009b2Jb\u007f\u202e"}`+"\n"; got != want {
		t.Errorf("answered %q, want %q", got, want)
	}
}
