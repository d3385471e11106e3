package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/provider"
)

// Document A: a receiver for the Gemini API with three layers of defence.
func TestGemini(t *testing.T) { run(t, geminiRows()) }

func geminiRows() []row {
	return []row{
		{"A1 the path token is compared in constant time, and another one answers 404", testPathToken},
		{"A2 after the token the secret header is compared in constant time, and another or none answers 401", testSecretHeader},
		{"A3 without an operation name, or in an unexpected shape, a delivery is ignored and nothing is stored", testNothingToActOn},
		{"A4 the event id is event_id, else operation and state", testEventIDOrOperationAndState},
		{"A5 key and work are stored in one commit, and a copy is a duplicate", testKeyAndWorkInOneCommit},
		{"A6 processed_events and work_queue have their equals in the store", testTablesHaveTheirEquals},
		{"A7 the worker asks the API for each operation, oldest first and in batches", testWorkerAsksTheAPI},
		{"A8 what the API calls unfinished does nothing and is asked for again", testForgedCompletionIsHarmless},
		{"A9 what is finished is handled, then marked done, and may be handled again", testFinishedIsHandledThenDone},
		{"A10 the environment alone makes the receiver", testEnvironmentMakesTheReceiver},
		{"A11 Gemini's own signatures verify, static, v1a and dynamic, on one source", testGeminiSignatures},
	}
}

const (
	hookToken  = "path-token-Qz7Wm2Xb9Kc4"
	hookSecret = "header-secret-8h3Jd6Lf1Ns5"
	hookPath   = "/hooks/gemini/" + hookToken
)

// hookSource is the receiver of the document. It keeps events without a
// handler: what is done with them is another matter.
func hookSource(t *testing.T) ichido.Source {
	src := newSource(t, "shared-secret", provider.Config{Name: "gemini", Secrets: secrets(hookSecret)})
	src.PathTokens = []string{hookToken}
	src.Keep = true
	return src
}

func serveHook(t *testing.T, s *testStore, src ichido.Source) (url string, in *ichido.Inbox) {
	in = newInbox(t, s, src)
	mux := http.NewServeMux()
	mux.Handle("/hooks/gemini/", in)
	return serve(t, mux), in
}

// secretHeader returns the header of the second layer.
func secretHeader(values ...string) http.Header { return http.Header{"X-Hook-Secret": values} }

const completed = `{"operation":{"name":"operations/1"},"state":"SUCCEEDED"}`

func testPathToken(t *testing.T) {
	comparesInConstantTime(t, "..")
	s := openMemory()
	url, _ := serveHook(t, s, hookSource(t))
	wrong := []string{
		"", "/", "x", hookToken + "x", "x" + hookToken, strings.ToUpper(hookToken), hookToken[:len(hookToken)-1],
		hookToken[1:], hookToken + "%00", hookToken + "/" + "more", strings.Repeat("x", 4000),
	}
	for n := range hookToken {
		wrong = append(wrong, hookToken[:n]+"~"+hookToken[n+1:])
	}
	bodies := map[string]bool{}
	for _, token := range wrong {
		for _, h := range []http.Header{secretHeader(hookSecret), secretHeader("another-secret-0123"), nil} {
			a := post(t, url+"/hooks/gemini/"+token, h, completed)
			a.is(t, http.StatusNotFound, ichido.CodeNotFound)
			bodies[a.body] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("404 has %d bodies, want one: %v", len(bodies), bodies)
	}
	if n := len(s.list(t, "gemini")); n != 0 {
		t.Errorf("%d events are stored for wrong tokens", n)
	}
	post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"accepted"}`)
	post(t, url+hookPath+"/", secretHeader(hookSecret), completed).says(t, `{"status":"duplicate"}`)

	src := hookSource(t)
	src.PathTokens = []string{hookToken, "the-next-token-5Rt8Yv0"}
	url, _ = serveHook(t, openMemory(), src)
	post(t, url+"/hooks/gemini/the-next-token-5Rt8Yv0", secretHeader(hookSecret), completed).says(t, `{"status":"accepted"}`)
	post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"duplicate"}`)

	for _, token := range []string{"", "short", "ends-in-a-space-0123 ", "has/slash/in/it/123"} {
		src.PathTokens = []string{token}
		if _, err := ichido.NewInbox(openMemory(), src); err == nil || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("path token %q: %v", token, err)
		}
	}
}

func testSecretHeader(t *testing.T) {
	comparesInConstantTime(t, "../provider")
	s := openMemory()
	url, _ := serveHook(t, s, hookSource(t))
	bodies := map[string]bool{}
	wrong := []http.Header{
		nil, secretHeader(""), secretHeader(" "), secretHeader("another-secret-0123"), secretHeader(hookSecret + "x"),
		secretHeader(strings.ToUpper(hookSecret)), secretHeader(hookSecret[1:]), secretHeader(hookSecret, hookSecret), secretHeader(hookSecret, "x"),
		{"Authorization": {"Bearer " + hookSecret}},
		{"X-Hook-Secret-2": {hookSecret}},
	}
	for n := range hookSecret {
		wrong = append(wrong, secretHeader(hookSecret[:n]+"~"+hookSecret[n+1:]), secretHeader(hookSecret[:n]))
	}
	for _, h := range wrong {
		a := post(t, url+hookPath, h, completed)
		a.is(t, http.StatusUnauthorized, ichido.CodeSignature)
		bodies[a.body] = true
		post(t, url+"/hooks/gemini/another-token-0123456", h, completed).is(t, http.StatusNotFound, ichido.CodeNotFound)
	}
	if len(bodies) != 1 {
		t.Errorf("401 has %d bodies, want one: %v", len(bodies), bodies)
	}
	// The secret comes before the body is looked at.
	post(t, url+hookPath, secretHeader("another-secret-0123"), "no JSON").is(t, http.StatusUnauthorized, ichido.CodeSignature)
	if n := len(s.list(t, "gemini")); n != 0 {
		t.Errorf("%d events are stored for wrong secrets", n)
	}
	a := post(t, url+hookPath, secretHeader(hookSecret), completed)
	a.says(t, `{"status":"accepted"}`)
	stored := s.only(t, "gemini")
	stored, err := s.Get(t.Context(), stored.ID())
	if err != nil || strings.Contains(string(stored.Header), hookSecret) || stored.Headers().Get("X-Hook-Secret") == "" {
		t.Errorf("the headers are stored as %q, %v; want the name without the secret", stored.Header, err)
	}
	if _, err := provider.New("shared-secret", provider.Config{}); err == nil {
		t.Error("a receiver without a secret can be made")
	}
}

func testNothingToActOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		var handled atomic.Int64
		src := hookSource(t)
		src.Handler = func(context.Context, *ichido.Event) error { handled.Add(1); return nil }
		url, in := serveHook(t, s, src)
		for _, body := range []string{
			`{}`, `{"state":"SUCCEEDED"}`, `{"event_id":"e1"}`,
			`{"operation":{}}`, `{"operation":{"name":""}}`, `{"operation":{"name":null}}`, `{"operation":null}`,
			`{"name":""}`, `{"name":null}`, `{"operation":{"name":""},"name":""}`,
			`{"operation":"operations/1"}`, `{"operation":["operations/1"]}`, `{"operation":1}`, `{"operation":true,"name":"operations/1"}`,
			`{"operation":{"name":1}}`, `{"operation":{"name":["operations/1"]}}`, `{"operation":{"name":{}}}`, `{"name":7}`, `{"name":false}`,
			`[]`, `[{"name":"operations/1"}]`, `"operations/1"`, `1`, `null`,
		} {
			a := post(t, url+hookPath, secretHeader(hookSecret), body)
			if a.status != http.StatusOK || strings.TrimSpace(a.body) != `{"status":"ignored"}` {
				t.Errorf("%s is answered %d %s", body, a.status, a.body)
			}
		}
		s.work(t, in)()
		if n := len(s.list(t, "")); n != 0 || handled.Load() != 0 {
			t.Errorf("%d records are stored and %d handled, though there was nothing to act on", n, handled.Load())
		}
		// The other name counts where the first is missing or empty.
		post(t, url+hookPath, secretHeader(hookSecret), `{"operation":{"name":""},"name":"operations/2"}`).says(t, `{"status":"accepted"}`)
		post(t, url+hookPath, secretHeader(hookSecret), `{"name":"operations/3"}`).says(t, `{"status":"accepted"}`)
		if got := keys(s.list(t, "gemini")); !slices.Equal(got, []string{"operations/2:", "operations/3:"}) {
			t.Errorf("stored %q", got)
		}
		// What is no JSON, or can be read in two ways, is kept for people to look
		// at. It is not sent again either.
		for _, body := range []string{`{"operation":`, ``, `{"name":"operations/4","name":"operations/5"}`, `{"NAME":"operations/6"}`} {
			post(t, url+hookPath, secretHeader(hookSecret), body).is(t, http.StatusOK, "")
			records := s.list(t, "gemini")
			if last := records[len(records)-1]; last.State != ichido.Quarantined || last.Cause == "" {
				t.Errorf("%q became %s, key %q", body, last.State, last.Key)
			}
		}
	})
}

func keys(records []ichido.Record) (list []string) {
	for _, r := range records {
		list = append(list, r.Key)
	}
	return list
}

func testEventIDOrOperationAndState(t *testing.T) {
	for _, c := range []struct{ body, key string }{
		{`{"event_id":"e-1","operation":{"name":"operations/1"},"state":"DONE"}`, "e-1"},
		{`{"event_id":"e-1","name":"operations/1"}`, "e-1"},
		{`{"event_id":"","operation":{"name":"operations/1"},"state":"DONE"}`, "operations/1:DONE"},
		{`{"event_id":null,"operation":{"name":"operations/1"},"state":"DONE"}`, "operations/1:DONE"},
		{`{"operation":{"name":"operations/1"},"state":"DONE"}`, "operations/1:DONE"},
		{`{"name":"operations/1","state":"DONE"}`, "operations/1:DONE"},
		{`{"operation":{"name":"operations/1"},"name":"operations/2","state":"DONE"}`, "operations/1:DONE"},
		{`{"operation":{"name":"operations/1"}}`, "operations/1:"},
		{`{"operation":{"name":"operations/1"},"state":""}`, "operations/1:"},
		{`{"operation":{"name":"operations/1"},"state":null}`, "operations/1:"},
		{`{"name":"operations/1"}`, "operations/1:"},
	} {
		s := openMemory()
		url, _ := serveHook(t, s, hookSource(t))
		post(t, url+hookPath, secretHeader(hookSecret), c.body).says(t, `{"status":"accepted"}`)
		if got := s.only(t, "gemini").Key; got != c.key {
			t.Errorf("%s has key %q, want %q", c.body, got, c.key)
		}
	}
	eachStore(t, func(t *testing.T, s *testStore) {
		url, _ := serveHook(t, s, hookSource(t))
		for _, d := range []struct{ body, status string }{
			{`{"operation":{"name":"operations/1"},"state":"RUNNING"}`, "accepted"},
			{`{"operation":{"name":"operations/1"},"state":"DONE"}`, "accepted"}, // another state is another event
			{`{"operation":{"name":"operations/1"},"state":"DONE","more":1}`, "duplicate"},
			{`{"event_id":"","operation":{"name":"operations/1"},"state":"DONE"}`, "duplicate"},
			{`{"event_id":"e-1","operation":{"name":"operations/1"},"state":"DONE"}`, "accepted"},
			{`{"event_id":"e-1","operation":{"name":"operations/9"},"state":"FAILED"}`, "duplicate"}, // the id decides alone
			{`{"operation":{"name":"operations/1"}}`, "accepted"},
			{`{"operation":{"name":"operations/1"},"state":""}`, "duplicate"},
		} {
			a := post(t, url+hookPath, secretHeader(hookSecret), d.body)
			if want := `{"status":"` + d.status + `"}`; a.status != http.StatusOK || strings.TrimSpace(a.body) != want {
				t.Errorf("%s is answered %d %s, want %s", d.body, a.status, a.body, want)
			}
		}
	})
}

// failing is a queue whose next Put fails.
type failing struct {
	ichido.Queue
	broken atomic.Bool
}

func (q *failing) Put(ctx context.Context, records []ichido.Record) ([]ichido.Verdict, error) {
	if q.broken.Load() {
		return nil, fmt.Errorf("put records: %w", ichido.ErrUnavailable)
	}
	return q.Queue.Put(ctx, records)
}

func testKeyAndWorkInOneCommit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		// A store that fails keeps neither key nor work, so the next copy is new.
		q := &failing{Queue: s.Queue}
		q.broken.Store(true)
		src := hookSource(t)
		running, release := make(chan struct{}, 100), make(chan struct{})
		open := sync.OnceFunc(func() { close(release) })
		defer open()
		src.Handler = func(context.Context, *ichido.Event) error { running <- struct{}{}; <-release; return nil }
		in := newInbox(t, q, src)
		url := serve(t, in)
		post(t, url+hookPath, secretHeader(hookSecret), completed).is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		if n := len(s.list(t, "gemini")); n != 0 {
			t.Fatalf("%d records are stored by a store that failed", n)
		}
		q.broken.Store(false)

		// Of many copies at once exactly one is accepted.
		const copies = 32
		answers := make(chan string, copies)
		for range copies {
			go func() {
				a, err := try(url+hookPath, secretHeader(hookSecret), strings.NewReader(completed))
				answers <- fmt.Sprint(a.status, strings.TrimSpace(a.body), err)
			}()
		}
		count := map[string]int{}
		for range copies {
			count[await(t, answers, "an answer")]++
		}
		if count[`200{"status":"accepted"}<nil>`] != 1 || count[`200{"status":"duplicate"}<nil>`] != copies-1 {
			t.Errorf("%d copies were answered %v", copies, count)
		}
		if r := s.only(t, "gemini"); r.State != ichido.Pending || r.Copies != copies-1 {
			t.Errorf("the event is %s with %d copies", r.State, r.Copies)
		}

		// Nothing heavy happens in the request: it is answered while a handler
		// that never ends has all the worker there is.
		stop := s.work(t, in)
		await(t, running, "the handler")
		post(t, url+hookPath, secretHeader(hookSecret), `{"name":"operations/2"}`).says(t, `{"status":"accepted"}`)
		post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"duplicate"}`)
		open()
		await(t, running, "the second handler")
		stop()
		post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"duplicate"}`) // done is known too
	})
}

func testTablesHaveTheirEquals(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		url, _ := serveHook(t, s, hookSource(t))
		before := time.Now().Truncate(time.Millisecond)
		for n := range 3 {
			post(t, url+hookPath, secretHeader(hookSecret), fmt.Sprintf(`{"operation":{"name":"operations/%d"},"state":"DONE"}`, n)).says(t, `{"status":"accepted"}`)
		}
		records := s.list(t, "gemini")
		for n, r := range records {
			// processed_events: dedupe_key, unique, and received_at.
			if want := fmt.Sprintf("operations/%d:DONE", n); r.Key != want {
				t.Errorf("key is %q, want %q", r.Key, want)
			}
			if r.ReceivedAt.Before(before) || r.ReceivedAt.After(time.Now()) {
				t.Errorf("received at %s, not between %s and now", r.ReceivedAt, before)
			}
			// work_queue: id in order, operation_name, enqueued_at and done.
			if n > 0 && r.Seq <= records[n-1].Seq {
				t.Errorf("seq %d comes after %d", r.Seq, records[n-1].Seq)
			}
			if r.State != ichido.Pending || r.Due.IsZero() {
				t.Errorf("a new event is %s, due %s", r.State, r.Due)
			}
			stored, err := s.Get(t.Context(), r.ID())
			if err != nil || !strings.Contains(string(stored.Body), fmt.Sprintf(`"operations/%d"`, n)) {
				t.Errorf("the body stored is %s, %v", stored.Body, err)
			}
		}
		// done = 1 is a state, and the key stays.
		handled := make(chan string, 3)
		src := hookSource(t)
		src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- e.Key(); return nil }
		stop := s.work(t, newInbox(t, s, src))
		for range 3 {
			await(t, handled, "a handler")
		}
		stop()
		for _, r := range s.list(t, "gemini") {
			if r.State != ichido.Done || r.Outcome != ichido.Applied || r.SettledAt.IsZero() {
				t.Errorf("a handled event is %s/%s, settled at %s", r.State, r.Outcome, r.SettledAt)
			}
		}
		post(t, url+hookPath, secretHeader(hookSecret), `{"operation":{"name":"operations/0"},"state":"DONE"}`).says(t, `{"status":"duplicate"}`)
	})
}

// geminiAPI answers GET /v1beta/{name} as the Gemini API does for operations.
type geminiAPI struct {
	mu     sync.Mutex
	done   map[string]bool // by name; a name that is not there is unknown
	asked  []string
	now    int           // requests being answered
	most   int           // the most at the same time
	gate   chan struct{} // when set, each answer waits for it
	asking chan string   // gets the name of each request
}

const apiKey = "api-key-for-tests-4Lm2Vx"

func newGeminiAPI() *geminiAPI {
	return &geminiAPI{done: map[string]bool{}, asking: make(chan string, 1000)}
}

func (g *geminiAPI) set(name string, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done[name] = done
}

func (g *geminiAPI) count(name string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, asked := range g.asked {
		if asked == name {
			n++
		}
	}
	return n
}

func (g *geminiAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/v1beta/")
	g.mu.Lock()
	g.asked = append(g.asked, name)
	g.now++
	g.most = max(g.most, g.now)
	done, known := g.done[name]
	g.mu.Unlock()
	g.asking <- name
	if g.gate != nil {
		<-g.gate
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("X-Goog-Api-Key") != apiKey || r.Method != http.MethodGet:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":{"code":403,"status":"PERMISSION_DENIED"}}`)
	case !known:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":404,"status":"NOT_FOUND"}}`)
	case done:
		fmt.Fprintf(w, `{"name":%q,"done":true,"response":{"by":"the API"}}`, name)
	default:
		fmt.Fprintf(w, `{"name":%q}`, name) // what is false is left out
	}
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
}

// confirmedBy makes a source ask the API before its handler.
func confirmedBy(t *testing.T, src *ichido.Source, g *geminiAPI, unknownFor time.Duration) {
	t.Helper()
	var err error
	src.Confirm, err = confirm.Gemini(confirm.GeminiOptions{APIKey: apiKey, BaseURL: serve(t, g), NotFoundFor: unknownFor})
	if err != nil {
		t.Fatal(err)
	}
}

func operation(n int) string { return fmt.Sprintf("operations/op-%02d", n) }

// receiveOperations stores notifications of completed operations, in order.
func receiveOperations(t *testing.T, url string, count int) {
	t.Helper()
	for n := range count {
		post(t, url+hookPath, secretHeader(hookSecret), fmt.Sprintf(`{"operation":{"name":%q},"state":"SUCCEEDED","response":{"by":"the payload"}}`, operation(n))).
			says(t, `{"status":"accepted"}`)
	}
}

func testWorkerAsksTheAPI(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		const total, batch = 45, 20
		g := newGeminiAPI()
		g.gate = make(chan struct{}, total)
		handled := make(chan string, total)
		src := hookSource(t)
		src.Concurrency = batch
		confirmedBy(t, &src, g, 0)
		src.Handler = func(_ context.Context, e *ichido.Event) error {
			handled <- e.Key() + " " + string(e.Confirmed())
			return nil
		}
		url, in := serveHook(t, s, src)
		receiveOperations(t, url, total)
		for n := range total {
			g.set(operation(n), true)
		}
		stop := s.work(t, in)

		// The first batch is the oldest twenty, whatever their order inside it.
		var first []string
		for range batch {
			first = append(first, await(t, g.asking, "a request to the API"))
		}
		slices.Sort(first)
		for n, name := range first {
			if name != operation(n) {
				t.Errorf("%s is in the first batch, want %s", name, operation(n))
			}
		}
		for range total {
			g.gate <- struct{}{}
		}
		for range total {
			got := await(t, handled, "a handler")
			name, _, _ := strings.Cut(got, ":SUCCEEDED ")
			if want := fmt.Sprintf(`%s:SUCCEEDED {"name":%q,"done":true,"response":{"by":"the API"}}`, name, name); got != want {
				t.Errorf("the handler got %s, want %s", got, want)
			}
		}
		stop()
		if g.most > batch || len(g.asked) != total {
			t.Errorf("the API was asked %d times, %d at the same time; want %d, at most %d", len(g.asked), g.most, total, batch)
		}
	})
	t.Run("one at a time", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			g := newGeminiAPI()
			src := hookSource(t)
			src.Concurrency = 1
			confirmedBy(t, &src, g, 0)
			handled := make(chan string, 5)
			src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- e.Key(); return nil }
			url, in := serveHook(t, s, src)
			receiveOperations(t, url, 5)
			for n := range 5 {
				g.set(operation(n), true)
			}
			s.work(t, in)
			for n := range 5 {
				if got, want := await(t, handled, "a handler"), operation(n)+":SUCCEEDED"; got != want {
					t.Errorf("handled %s, want %s: oldest first", got, want)
				}
			}
		})
	})
}

func testForgedCompletionIsHarmless(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		g := newGeminiAPI()
		g.set("operations/1", false)
		handled := make(chan string, 10)
		src := hookSource(t)
		confirmedBy(t, &src, g, 0)
		src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- string(e.Confirmed()); return nil }
		url, in := serveHook(t, s, src)
		post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"accepted"}`)

		for round := range 3 {
			stop := s.work(t, in)
			await(t, g.asking, "a request to the API")
			stop()
			r := s.only(t, "gemini")
			if r.State != ichido.Pending || r.Attempts != 0 || !r.Due.After(s.clock.now()) {
				t.Errorf("round %d: the event is %s with %d attempts, due %s", round, r.State, r.Attempts, r.Due)
			}
			s.work(t, in)() // not due yet: not asked
			if n := g.count("operations/1"); n != round+1 || len(handled) != 0 {
				t.Errorf("round %d: the API was asked %d times and %d handlers ran", round, n, len(handled))
			}
			s.clock.advance(time.Hour)
		}
		g.set("operations/1", true)
		stop := s.work(t, in)
		if got := await(t, handled, "the handler"); !strings.Contains(got, `"done":true`) {
			t.Errorf("the handler got %s", got)
		}
		stop()
		if r := s.only(t, "gemini"); r.State != ichido.Done || r.Outcome != ichido.Applied || r.Attempts != 1 {
			t.Errorf("the event is %s/%s after %d attempts", r.State, r.Outcome, r.Attempts)
		}
	})
	t.Run("of an operation that does not exist", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			g := newGeminiAPI()
			src := hookSource(t)
			confirmedBy(t, &src, g, time.Nanosecond)
			src.Handler = func(context.Context, *ichido.Event) error { t.Error("a handler ran"); return nil }
			url, in := serveHook(t, s, src)
			post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"accepted"}`)
			stop := s.work(t, in)
			await(t, g.asking, "a request to the API")
			stop()
			if r := s.only(t, "gemini"); r.State != ichido.Done || r.Outcome != ichido.Refuted {
				t.Errorf("the event is %s/%s, want done/refuted", r.State, r.Outcome)
			}
		})
	})
}

func testFinishedIsHandledThenDone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		g := newGeminiAPI()
		g.set("operations/1", true)
		results := map[string]string{} // the effect, by event: writing it again changes nothing
		handled := make(chan int, 10)
		src := hookSource(t)
		src.Backoff = []time.Duration{time.Nanosecond}
		confirmedBy(t, &src, g, 0)
		src.Handler = func(ctx context.Context, e *ichido.Event) error {
			if r, err := s.Get(ctx, e.ID()); err != nil || r.State != ichido.Claimed {
				t.Errorf("while its handler runs the event is %s, %v; want claimed", r.State, err)
			}
			results[e.ID()] = string(e.Confirmed())
			defer func() { handled <- e.Attempt() }()
			if e.Attempt() == 1 {
				return errors.New("stopped halfway")
			}
			return nil
		}
		url, in := serveHook(t, s, src)
		post(t, url+hookPath, secretHeader(hookSecret), completed).says(t, `{"status":"accepted"}`)
		stop := s.work(t, in)
		await(t, handled, "the first attempt")
		await(t, handled, "the second attempt")
		stop()
		r := s.only(t, "gemini")
		if r.State != ichido.Done || r.Outcome != ichido.Applied || r.Attempts != 2 {
			t.Errorf("the event is %s/%s after %d attempts", r.State, r.Outcome, r.Attempts)
		}
		if string(r.Confirmed) != "" {
			t.Error("a list holds confirmed states")
		}

		// Done is done: another worker finds nothing. An operator may ask for it
		// again, and the effect is the same one.
		s.work(t, in)()
		if n, err := s.Replay(t.Context(), ichido.Filter{ID: r.ID()}, false); n != 1 || err != nil {
			t.Fatalf("replay: %d, %v", n, err)
		}
		stop = s.work(t, in)
		await(t, handled, "the replayed attempt")
		await(t, handled, "the attempt after it")
		stop()
		if len(results) != 1 || len(handled) != 0 {
			t.Errorf("there are %d results, and %d handlers more than asked for", len(results), len(handled))
		}
		if r, err := s.Get(t.Context(), r.ID()); err != nil || r.State != ichido.Done || !strings.Contains(string(r.Confirmed), "the API") {
			t.Errorf("the event is %s with %s, %v", r.State, r.Confirmed, err)
		}
	})
}
