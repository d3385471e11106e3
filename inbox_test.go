package ichido_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

const testSecret = "k3y-for-tests-only-0123456789abcdef"

// testProvider signs with X-Sig: hex HMAC-SHA256 of the body. The body is JSON
// with id and type.
type testProvider struct {
	deny, ignore bool
}

func sign(body []byte) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (p testProvider) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	given, err := hex.DecodeString(d.Header.Get("X-Sig"))
	want, _ := hex.DecodeString(sign(d.Body))
	if err != nil || !hmac.Equal(given, want) {
		return ichido.Proof{}, &ichido.Error{Code: ichido.CodeSignature, Op: "verify", Cause: "signature_mismatch"}
	}
	proof := ichido.Proof{
		Scheme: "default", Strength: ichido.Verified, TypeSigned: true, Fingerprint: sha256.Sum256(d.Body),
		Keep: []string{"X-Sig", "X-Token"}, Redact: []string{"X-Token"},
	}
	var envelope struct{ ID, Type string }
	if json.Unmarshal(d.Readable(), &envelope) != nil || envelope.ID == "" {
		proof.Unreadable = "no id"
		return proof, nil
	}
	proof.ID, proof.Key, proof.Type = envelope.ID, envelope.ID, envelope.Type
	if p.deny {
		proof.Denied = "not in the list"
	}
	if p.ignore {
		proof.Ignored = "nothing to do"
	}
	return proof, nil
}

// Inspect refuses a type whose body lacks a member.
func (p testProvider) Inspect(eventType string, body []byte) ([]byte, error) {
	if !json.Valid(body) {
		return nil, &ichido.Error{Code: ichido.CodeUnreadable, Op: "inspect", Cause: "not JSON"}
	}
	if eventType == "delete" && !bytes.Contains(body, []byte(`"ref_type"`)) {
		return nil, &ichido.Error{Code: ichido.CodeNotAllowed, Op: "inspect", Cause: "ref_type is missing"}
	}
	return body, nil
}

var quiet = slog.New(slog.DiscardHandler)

func handled(context.Context, *ichido.Event) error { return nil }

// newInbox makes an inbox over a store, with a handler unless src has one.
func newInbox(t *testing.T, q ichido.Queue, src ichido.Source) *ichido.Inbox {
	t.Helper()
	if src.Name == "" {
		src.Name = "test"
	}
	if src.Provider == nil {
		src.Provider = testProvider{}
	}
	if src.Handler == nil && src.Inline == nil && src.Apply == nil {
		src.Handler = handled
	}
	src.Log = quiet
	in, err := ichido.NewInbox(q, src)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func signed(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/hooks/test", strings.NewReader(body))
	r.Header.Set("X-Sig", sign([]byte(body)))
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// brokenQueue fails every Put.
type brokenQueue struct {
	ichido.Queue
	err error
}

func (b brokenQueue) Put(context.Context, []ichido.Record) ([]ichido.Verdict, error) {
	return nil, b.err
}

const goodBody = `{"id":"e1","type":"paid"}`

func TestAnswersAreThoseOfTheTable(t *testing.T) {
	store := func() ichido.Queue { return memory.New(memory.Options{}) }
	drained := &ichido.Admission{}
	drained.Drain()
	full := memory.New(memory.Options{Capacity: 1})
	if w := do(newInbox(t, full, ichido.Source{}), signed(`{"id":"first"}`)); w.Code != 200 {
		t.Fatalf("fill the store: %d", w.Code)
	}
	large := strings.Repeat("x", 1<<20+1)
	for _, test := range []struct {
		name    string
		queue   ichido.Queue
		src     ichido.Source
		request func() *http.Request
		status  int
		code    string
		header  string // "Name: value" that must be there
	}{
		{name: "stored", request: func() *http.Request { return signed(goodBody) }, status: 200},
		{name: "signature missing", request: func() *http.Request { r := signed(goodBody); r.Header.Del("X-Sig"); return r }, status: 401, code: "signature_invalid"},
		{name: "signature wrong", request: func() *http.Request { r := signed(goodBody); r.Header.Set("X-Sig", sign([]byte("x"))); return r }, status: 401, code: "signature_invalid"},
		{name: "wrong method", request: func() *http.Request { return httptest.NewRequest("GET", "/", nil) }, status: 405, code: "method_not_allowed", header: "Allow: POST"},
		{name: "declared too large", request: func() *http.Request { return signed(large) }, status: 413, code: "payload_too_large", header: "Connection: close"},
		{name: "larger than it says", request: func() *http.Request { r := signed(large); r.ContentLength = 10; return r }, status: 413, code: "payload_too_large", header: "Connection: close"},
		{name: "larger without a length", request: func() *http.Request { r := signed(large); r.ContentLength = -1; return r }, status: 413, code: "payload_too_large", header: "Connection: close"},
		{name: "shorter than declared", request: func() *http.Request { r := signed(goodBody); r.ContentLength = 100; return r }, status: 400, code: "body_incomplete", header: "Connection: close"},
		{name: "encoding not supported", request: func() *http.Request {
			r := signed(goodBody)
			r.Header.Set("Content-Encoding", "gzip")
			return r
		}, status: 415, code: "encoding_not_supported"},
		{name: "not allowed", src: ichido.Source{Provider: testProvider{deny: true}}, request: func() *http.Request { return signed(goodBody) }, status: 403, code: "event_not_allowed"},
		{name: "required member missing", request: func() *http.Request { return signed(`{"id":"e1","type":"delete"}`) }, status: 403, code: "event_not_allowed"},
		{name: "unreadable", request: func() *http.Request { return signed("not json") }, status: 400, code: "payload_unreadable"},
		{name: "unreadable, accepted", src: ichido.Source{AcceptUnreadable: true}, request: func() *http.Request { return signed("not json") }, status: 200},
		{name: "over the source's rate", src: ichido.Source{Allow: func() bool { return false }}, request: func() *http.Request { return signed(goodBody) }, status: 429, code: "rate_limited", header: "Retry-After: 10"},
		{name: "over the unauthenticated rate", src: ichido.Source{Admission: &ichido.Admission{Allow: func() bool { return false }}}, request: func() *http.Request { return signed(goodBody) }, status: 503, code: "overloaded", header: "Connection: close"},
		{name: "no memory", src: ichido.Source{Admission: &ichido.Admission{Small: 1}}, request: func() *http.Request { return signed(goodBody) }, status: 503, code: "overloaded", header: "Retry-After: 5"},
		{name: "draining", src: ichido.Source{Admission: drained}, request: func() *http.Request { return signed(goodBody) }, status: 503, code: "draining", header: "Retry-After: 5"},
		{name: "store down", queue: brokenQueue{err: ichido.ErrUnavailable}, request: func() *http.Request { return signed(goodBody) }, status: 503, code: "store_unavailable", header: "Retry-After: 5"},
		{name: "store full", queue: full, request: func() *http.Request { return signed(goodBody) }, status: 503, code: "inbox_full", header: "Retry-After: 30"},
		{name: "path token wrong", src: ichido.Source{PathTokens: []string{"right-token-0123456789"}}, request: func() *http.Request { return signed(goodBody) }, status: 404, code: "not_found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := test.queue
			if q == nil {
				q = store()
			}
			w := do(newInbox(t, q, test.src), test.request())
			if w.Code != test.status {
				t.Errorf("status %d, want %d; body %s", w.Code, test.status, w.Body)
			}
			if test.code != "" {
				var p struct {
					Code   string
					Status int
				}
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != test.code || p.Status != test.status {
					t.Errorf("problem %s (%v), want code %s and status %d", w.Body, err, test.code, test.status)
				}
				if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("content type %q", got)
				}
			}
			if name, value, found := strings.Cut(test.header, ": "); found && w.Header().Get(name) != value {
				t.Errorf("header %s is %q, want %q", name, w.Header().Get(name), value)
			}
		})
	}
}

func TestDuplicateIsAnsweredAsAcceptedAndConflictIsQuarantined(t *testing.T) {
	store := memory.New(memory.Options{})
	in := newInbox(t, store, ichido.Source{})
	first, again := do(in, signed(goodBody)), do(in, signed(goodBody))
	other := do(in, signed(`{"id":"e1","type":"paid","amount":2}`))
	var a, b struct {
		Accepted, Duplicate bool
		ID                  string
	}
	json.Unmarshal(first.Body.Bytes(), &a)
	json.Unmarshal(again.Body.Bytes(), &b)
	if first.Code != 200 || again.Code != 200 || !a.Accepted || a.Duplicate || !b.Duplicate || a.ID == "" || a.ID != b.ID {
		t.Errorf("first %d %s, again %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if other.Code != 409 {
		t.Errorf("conflict answered %d %s", other.Code, other.Body)
	}
	do(in, signed(`{"id":"e1","type":"paid","amount":2}`)) // again: kept once
	records, err := store.List(context.Background(), ichido.Filter{State: ichido.Quarantined})
	if err != nil || len(records) != 1 || !strings.HasPrefix(records[0].Cause, ichido.CodeConflict) {
		t.Fatalf("quarantine: %v, %v", records, err)
	}
	rec, err := store.Get(context.Background(), records[0].ID())
	if err != nil || string(rec.Body) != `{"id":"e1","type":"paid","amount":2}` {
		t.Errorf("quarantined body %q, %v", rec.Body, err)
	}
	if w := do(newInbox(t, store, ichido.Source{AcceptConflict: true}), signed(`{"id":"e1","type":"paid","amount":3}`)); w.Code != 200 || !strings.Contains(w.Body.String(), `"quarantined":true`) {
		t.Errorf("accepted conflict: %d %s", w.Code, w.Body)
	}
}

func TestRefusedAnswersAreConstants(t *testing.T) {
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{})
	seen := map[string]bool{}
	for _, mutate := range []func(*http.Request){
		func(r *http.Request) { r.Header.Del("X-Sig") },
		func(r *http.Request) { r.Header.Set("X-Sig", "zz") },
		func(r *http.Request) { r.Header.Set("X-Sig", strings.Repeat("0", 64)) },
	} {
		r := signed(`{"id":"<script>"}`)
		mutate(r)
		seen[fmt.Sprint(do(in, r).Body)] = true
	}
	if len(seen) != 1 {
		t.Errorf("401 has %d different bodies: %v", len(seen), seen)
	}
	for body := range seen {
		if strings.Contains(body, "script") {
			t.Errorf("the answer reflects input: %s", body)
		}
	}
}

func TestUnknownPathAndWrongTokenAreTheSame404(t *testing.T) {
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{PathTokens: []string{"right-token-0123456789", "next-token-01234567890"}})
	right := signed(goodBody)
	right.URL.Path = "/hooks/test/next-token-01234567890/"
	if w := do(in, right); w.Code != 200 {
		t.Errorf("right token with a slash at the end: %d", w.Code)
	}
	wrong, unknown := do(in, signed(goodBody)), do(ichido.NotFound(nil), signed(goodBody))
	if wrong.Code != 404 || unknown.Code != 404 || wrong.Body.String() != unknown.Body.String() {
		t.Errorf("wrong token %d %s, unknown path %d %s", wrong.Code, wrong.Body, unknown.Code, unknown.Body)
	}
	if diff := cmp.Diff(unknown.Header(), wrong.Header()); diff != "" {
		t.Errorf("headers differ:\n%s", diff)
	}
	get := httptest.NewRequest("GET", "/hooks/test/wrong", nil)
	if w := do(in, get); w.Code != 404 {
		t.Errorf("GET with a wrong token: %d, want 404 like any unknown path", w.Code)
	}
}

func TestSecretsAreReplacedInStoredHeaders(t *testing.T) {
	store := memory.New(memory.Options{})
	in := newInbox(t, store, ichido.Source{})
	r := signed(goodBody)
	r.Header.Set("X-Token", "canary-token")
	r.Header.Set("Cookie", "canary-cookie")
	r.Header.Set("Content-Type", "application/json")
	do(in, r)
	records, _ := store.List(context.Background(), ichido.Filter{})
	rec, err := store.Get(context.Background(), records[0].ID())
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Content-Type": {"application/json"}, "X-Sig": {sign([]byte(goodBody))}, "X-Token": {"[redacted]"}}
	if diff := cmp.Diff(want, rec.Headers()); diff != "" {
		t.Errorf("stored headers (-want +got):\n%s", diff)
	}
}

func TestNothingIsStoredOfUnverifiedRequests(t *testing.T) {
	store := memory.New(memory.Options{})
	in := newInbox(t, store, ichido.Source{AcceptUnreadable: true, AcceptConflict: true})
	for i := range 1000 {
		r := signed(fmt.Sprintf(`{"id":"%d"}`, i))
		r.Header.Set("X-Sig", strings.Repeat("0", 64))
		if w := do(in, r); w.Code != 401 {
			t.Fatalf("forged delivery answered %d", w.Code)
		}
	}
	if records, _ := store.List(context.Background(), ichido.Filter{}); len(records) != 0 {
		t.Errorf("%d records of unverified requests", len(records))
	}
}

func TestGzipIsReadAsTheSourceSays(t *testing.T) {
	var wire bytes.Buffer
	z := gzip.NewWriter(&wire)
	io.WriteString(z, goodBody)
	z.Close()
	send := func(mode, signedBody string, encoding string, body []byte) int {
		in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Encoding: mode})
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		r.Header.Set("X-Sig", sign([]byte(signedBody)))
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		return do(in, r).Code
	}
	compressed := wire.Bytes()
	for _, test := range []struct {
		name, mode, signed, encoding string
		body                         []byte
		want                         int
	}{
		{"refused", "", string(compressed), "gzip", compressed, 415},
		{"decoded: plain MAC", "decoded", goodBody, "gzip", compressed, 200},
		{"decoded: other case", "decoded", goodBody, "X-GZIP", compressed, 200},
		{"decoded: wire MAC", "decoded", string(compressed), "gzip", compressed, 401},
		{"two encodings", "decoded", goodBody, "gzip, gzip", compressed, 415},
		{"brotli", "decoded", goodBody, "br", compressed, 415},
		{"no header means plain bytes", "decoded", goodBody, "", []byte(goodBody), 200},
		{"cut stream", "decoded", goodBody, "gzip", compressed[:len(compressed)-5], 400},
		{"wire: wire MAC", "wire", string(compressed), "gzip", compressed, 200},
		{"wire: plain MAC", "wire", goodBody, "gzip", compressed, 401},
		{"wire: verified, cut stream", "wire", string(compressed[:20]), "gzip", compressed[:20], 400},
		{"bomb", "decoded", "", "gzip", bomb(t, 16<<20), 413},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := send(test.mode, test.signed, test.encoding, test.body); got != test.want {
				t.Errorf("answered %d, want %d", got, test.want)
			}
		})
	}
}

// bomb returns gzip that opens to n zeros.
func bomb(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range n >> 20 {
		z.Write(zeros)
	}
	z.Close()
	return b.Bytes()
}

func TestSlowBodyIsAnswered408AndGivesItsMemoryBack(t *testing.T) {
	admission := &ichido.Admission{}
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Admission: admission})
	w := do(in, httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("{"), errorReader{context.DeadlineExceeded})))
	if w.Code != 400 {
		t.Errorf("a body whose reader failed: %d, want 400", w.Code)
	}
	w = do(in, httptest.NewRequest("POST", "/", errorReader{&net.OpError{Op: "read", Err: timeoutError{}}}))
	if w.Code != 408 {
		t.Errorf("a body that timed out: %d, want 408", w.Code)
	}
	if n := admission.InUse(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

// timeoutError is what a connection whose deadline is over returns.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
func (timeoutError) Is(target error) bool {
	return target.Error() == "i/o timeout"
}

func TestPanicInAProviderIsA500AndGivesItsMemoryBack(t *testing.T) {
	admission := &ichido.Admission{}
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Provider: panicking{}, Admission: admission})
	for _, body := range []string{goodBody, strings.Repeat("x", 500_000)} {
		if w := do(in, signed(body)); w.Code != 500 || !strings.Contains(w.Body.String(), "internal") {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
		if held := admission.InUse(); held != 0 {
			t.Errorf("%d bytes are reserved after a body of %d", held, len(body))
		}
	}
}

type panicking struct{}

func (panicking) Verify(*ichido.Delivery) (ichido.Proof, error) { panic("index out of range") }

// A store that panics, or that does not answer for each record, must not leave
// a slot pledged: the worker's end waits for those.
func TestABrokenStoreDoesNotHoldUpTheWorker(t *testing.T) {
	for name, put := range map[string]func() ([]ichido.Verdict, error){
		"panic":      func() ([]ichido.Verdict, error) { panic("index out of range") },
		"no verdict": func() ([]ichido.Verdict, error) { return nil, nil },
		"error":      func() ([]ichido.Verdict, error) { return nil, ichido.ErrUnavailable },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := breakingPut{memory.New(memory.Options{}), put}
			in := newInbox(t, store, ichido.Source{})
			w := ichido.NewWorker(store, in)
			w.Log = quiet
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			synctest.Wait()
			if a := do(in, signed(goodBody)); a.Code < 500 {
				t.Errorf("%s: answered %d %s", name, a.Code, a.Body)
			}
			cancel()
			synctest.Wait()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("%s: the worker has not ended", name)
			}
		})
	}
}

// breakingPut is a store whose Put does something else.
type breakingPut struct {
	*memory.Store
	put func() ([]ichido.Verdict, error)
}

func (b breakingPut) Put(context.Context, []ichido.Record) ([]ichido.Verdict, error) { return b.put() }

// deadlines records the read deadlines of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.last = t; return nil }

// net/http reads some of what is left of a body after the answer: a sender that
// goes on slowly must not hold the connection.
func TestWhatIsLeftOfARefusedBodyHasADeadline(t *testing.T) {
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{BodyLimit: 100})
	for _, test := range []struct {
		name    string
		request func(r *http.Request)
		code    int
		limited bool
	}{
		{"whole", func(*http.Request) {}, 200, false},
		{"too large", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 200))) }, 413, true},
		{"declared too large", func(r *http.Request) { r.ContentLength = 200 }, 413, true},
		{"wrong method", func(r *http.Request) { r.Method = http.MethodPut }, 405, true},
		{"encoded", func(r *http.Request) { r.Header.Set("Content-Encoding", "br") }, 415, true},
	} {
		r := signed(goodBody)
		r.ContentLength = -1 // as with chunks: its length shows while it is read
		test.request(r)
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		in.ServeHTTP(w, r)
		if w.Code != test.code || w.last.IsZero() == test.limited || time.Until(w.last) > 10*time.Second {
			t.Errorf("%s: answered %d, then a read deadline of %s, want %d, limited: %t", test.name, w.Code, w.last, test.code, test.limited)
		}
	}
}

// lateReader is a store that gives up on a Put, and reads its records later.
type lateReader struct {
	*memory.Store
	read chan []ichido.Record
}

func (l lateReader) Put(ctx context.Context, records []ichido.Record) ([]ichido.Verdict, error) {
	<-ctx.Done()
	l.read <- records
	return nil, errors.Join(ichido.ErrUnavailable, ctx.Err())
}

// After a Put that was given up the store may still be reading: the buffers
// must not serve another request.
func TestBuffersOfAnAbandonedPutAreNotUsedAgain(t *testing.T) {
	store := lateReader{memory.New(memory.Options{}), make(chan []ichido.Record, 1)}
	in := newInbox(t, store, ichido.Source{StoreTimeout: time.Millisecond})
	if w := do(in, signed(goodBody)); w.Code != 503 {
		t.Fatalf("answered %d", w.Code)
	}
	records := <-store.read
	for i := range 100 {
		do(in, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", len(goodBody)+i))))
	}
	if got := string(records[0].Body); got != goodBody || records[0].Key != "e1" {
		t.Errorf("the record's body became %q, its key %q", got, records[0].Key)
	}
}

func TestARepeatedBodyDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		src := ichido.Source{Name: "test", Provider: testProvider{}, Handler: handled, Log: slog.New(slog.NewTextHandler(&log, nil))}
		in, err := ichido.NewInbox(memory.New(memory.Options{}), src)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			do(in, signed(`{"no":"id"}`))
		}
		time.Sleep(time.Minute)
		do(in, signed(`{"no":"id"}`))
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[1], "times=300") {
			t.Errorf("301 copies of one unreadable body were logged as\n%s", log.String())
		}
	})
}

func TestOnlyAProbeWithABodyClosesItsConnection(t *testing.T) {
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{})
	for body, want := range map[string]string{"": "", "x": "close"} {
		w := do(in, httptest.NewRequest(http.MethodPut, "/hooks/test", strings.NewReader(body)))
		if got := w.Header().Get("Connection"); w.Code != 405 || got != want {
			t.Errorf("body %q: answered %d, connection %q, want 405, %q", body, w.Code, got, want)
		}
	}
}

func TestTwoHundredCopiesAtOnceAreOneEvent(t *testing.T) {
	store := memory.New(memory.Options{})
	in := newInbox(t, store, ichido.Source{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for range 200 {
		wg.Go(func() {
			w := do(in, signed(goodBody))
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(w.Body.String(), `"duplicate":false`) {
				accepted++
			}
			if w.Code != 200 {
				t.Errorf("answered %d", w.Code)
			}
		})
	}
	wg.Wait()
	if accepted != 1 {
		t.Errorf("%d copies were accepted as new, want 1", accepted)
	}
}

func TestSourceProblemsAreReportedTogether(t *testing.T) {
	_, err := ichido.NewInbox(nil, ichido.Source{
		Name: "a/b", Handler: handled, Apply: memory.New(memory.Options{}).Apply(handled), BodyLimit: -1, PathTokens: []string{"short", "your-path-token-goes-here", "0123456789abcdef|é"}, Encoding: "br",
	})
	for _, want := range []string{"name must be", "provider is missing", "only one of", "queue is missing", "path token 1", "path token 2 is a placeholder", "path token 3 must be", "negative", "encoding"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "short\"") {
		t.Errorf("error shows the token: %v", err)
	}
}

func TestASourceThatDoesNothingIsRefused(t *testing.T) {
	src := ichido.Source{Name: "test", Provider: testProvider{}}
	if _, err := ichido.NewInbox(memory.New(memory.Options{}), src); err == nil || !strings.Contains(err.Error(), "nothing is done") {
		t.Errorf("a source without a handler: %v", err)
	}
	src.Keep = true
	if _, err := ichido.NewInbox(memory.New(memory.Options{}), src); err != nil {
		t.Errorf("a source that only stores: %v", err)
	}
}

func TestEventsWithoutAHandlerMakeNoRecord(t *testing.T) {
	store := memory.New(memory.Options{})
	only := func(eventType string) bool { return eventType == "paid" }
	in := newInbox(t, store, ichido.Source{Handles: only})
	if w := do(in, signed(`{"id":"e2","type":"other"}`)); w.Code != 200 || !strings.Contains(w.Body.String(), `"ignored":true`) {
		t.Errorf("unhandled type: %d %s", w.Code, w.Body)
	}
	if w := do(newInbox(t, store, ichido.Source{Provider: testProvider{ignore: true}}), signed(goodBody)); w.Code != 200 {
		t.Errorf("ignored by the provider: %d", w.Code)
	}
	if records, _ := store.List(context.Background(), ichido.Filter{}); len(records) != 0 {
		t.Errorf("%d records", len(records))
	}
}

func TestStoreThatHangsIsAnswered503AfterItsTimeout(t *testing.T) {
	in := newInbox(t, hanging{}, ichido.Source{StoreTimeout: time.Millisecond})
	if w := do(in, signed(goodBody)); w.Code != 503 {
		t.Errorf("answered %d", w.Code)
	}
}

// hanging never answers a Put before its context ends.
type hanging struct{ ichido.Queue }

func (hanging) Put(ctx context.Context, _ []ichido.Record) ([]ichido.Verdict, error) {
	<-ctx.Done()
	return nil, errors.Join(ichido.ErrUnavailable, ctx.Err())
}
