package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/sqlite"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is the time of a store: the real one, plus what a test adds.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// testStore is a store with everything that the rows need of one.
type testStore struct {
	ichido.Queue
	ichido.Archive
	clock  *clock
	claims ichido.Claims

	// apply makes an Applier of a handler that needs no transaction.
	apply func(ichido.Handler) ichido.Applier

	// Set for SQLite only.
	db   *sql.DB
	path string
	tx   func(func(context.Context, *sql.Tx, *ichido.Event) error) ichido.Applier
}

// eachStore runs a test on a fresh store of each kind.
func eachStore(t *testing.T, test func(t *testing.T, s *testStore)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t, filepath.Join(t.TempDir(), "events.db"))) })
	t.Run("memory", func(t *testing.T) { test(t, openMemory()) })
}

func openMemory() *testStore {
	c := &clock{}
	s := memory.New(memory.Options{Clock: c.now})
	return &testStore{Queue: s, Archive: s, clock: c, claims: s.Claims(), apply: func(h ichido.Handler) ichido.Applier { return s.Apply(h) }}
}

func openSQLite(t *testing.T, path string) *testStore {
	t.Helper()
	c := &clock{}
	s, db := openSQLiteStore(t, path, sqlite.Options{Clock: c.now, MinFree: -1})
	claims, err := s.Claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &testStore{
		Queue: s, Archive: s, clock: c, claims: claims, db: db, path: path, tx: s.Tx,
		apply: func(h ichido.Handler) ichido.Applier {
			return s.Tx(func(ctx context.Context, _ *sql.Tx, e *ichido.Event) error { return h(ctx, e) })
		},
	}
}

// openSQLiteStore opens a store that is closed when the test ends.
func openSQLiteStore(t *testing.T, path string, o sqlite.Options) (*sqlite.Store, *sql.DB) {
	t.Helper()
	db := openDB(t, path)
	s, err := sqlite.Open(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s, db
}

func openDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// list returns what is stored of a source, oldest first.
func (s *testStore) list(t *testing.T, source string) []ichido.Record {
	t.Helper()
	records, err := s.List(t.Context(), ichido.Filter{Source: source, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := 0, len(records)-1; i < j; i, j = i+1, j-1 {
		records[i], records[j] = records[j], records[i]
	}
	return records
}

// only returns the one record of a source.
func (s *testStore) only(t *testing.T, source string) ichido.Record {
	t.Helper()
	records := s.list(t, source)
	if len(records) != 1 {
		t.Fatalf("%d records of source %s are stored, want 1", len(records), source)
	}
	return records[0]
}

// work runs a worker until stop is called; stop returns when everything that
// was started is settled.
func (s *testStore) work(t *testing.T, inboxes ...*ichido.Inbox) (stop func()) {
	t.Helper()
	w := ichido.NewWorker(s.Queue, inboxes...)
	w.Poll, w.Log = time.Millisecond, quiet
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run the worker: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// newSource makes a source of a profile, without a log.
func newSource(t *testing.T, profile string, c provider.Config) ichido.Source {
	t.Helper()
	src, err := provider.New(profile, c)
	if err != nil {
		t.Fatal(err)
	}
	src.Log = quiet
	return src
}

func newInbox(t *testing.T, q ichido.Queue, src ichido.Source) *ichido.Inbox {
	t.Helper()
	in, err := ichido.NewInbox(q, src)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// secrets lists secrets as a configuration takes them.
func secrets(values ...string) []provider.Secret {
	list := make([]provider.Secret, len(values))
	for i, value := range values {
		list[i].Value = value
	}
	return list
}

// signed returns the headers with which a sender would send body now.
func signed(t *testing.T, profile string, c provider.SignConfig, body string) http.Header {
	t.Helper()
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	h, err := provider.Sign(profile, c, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serve serves a handler over HTTP and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// answer is a response, read to its end.
type answer struct {
	status int
	code   string // stable code of a problem
	body   string
	header http.Header
}

// is reports an answer that is not the expected one; code "" stands for an
// answer that is no problem.
func (a answer) is(t *testing.T, status int, code string) {
	t.Helper()
	if a.status != status || a.code != code {
		t.Errorf("answered %d %q (%s), want %d %q", a.status, a.code, strings.TrimSpace(a.body), status, code)
	}
}

// says reports an answer that is not 200 with exactly this JSON.
func (a answer) says(t *testing.T, body string) {
	t.Helper()
	if a.status != http.StatusOK || strings.TrimSpace(a.body) != body {
		t.Errorf("answered %d %s, want 200 %s", a.status, strings.TrimSpace(a.body), body)
	}
}

// post sends a delivery over HTTP.
func post(t *testing.T, url string, h http.Header, body string) answer {
	t.Helper()
	return postReader(t, url, h, strings.NewReader(body))
}

// postReader is post; without a length where the reader does not tell one.
func postReader(t *testing.T, url string, h http.Header, body io.Reader) answer {
	t.Helper()
	a, err := try(url, h, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// client gives up on a server that does not answer.
var client = &http.Client{Timeout: patience}

// try is postReader for other goroutines than the test's.
func try(url string, h http.Header, body io.Reader) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		return answer{}, err
	}
	for name, values := range h {
		r.Header[name] = values
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return newAnswer(response.StatusCode, response.Header, data), err
}

// direct sends a request to a handler without a network between.
func direct(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return newAnswer(w.Code, w.Header(), w.Body.Bytes())
}

// delivery returns a request for [direct].
func delivery(path string, h http.Header, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for name, values := range h {
		r.Header[name] = values
	}
	return r
}

func newAnswer(status int, h http.Header, body []byte) answer {
	a := answer{status: status, body: string(body), header: h}
	if h.Get("Content-Type") == "application/problem+json" {
		var problem struct{ Code string }
		if json.Unmarshal(body, &problem) == nil {
			a.code = problem.Code
		}
	}
	return a
}

// chunked hides the length of a body.
type chunked struct{ io.Reader }

// watched counts what a provider is asked. It has none of the provider's
// optional interfaces, so answers are the standard ones.
type watched struct {
	ichido.Provider
	verified atomic.Int64
}

func (w *watched) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	w.verified.Add(1)
	return w.Provider.Verify(d)
}

// buffer is a log that several goroutines write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// patience is how long a test waits for what must come. It is never waited
// for unless the test fails.
const patience = 20 * time.Second

// await returns what comes through a channel.
func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}
