package conformance

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

// Document B: a framework that handles webhooks safely.
func TestFramework(t *testing.T) { run(t, frameworkRows()) }

func frameworkRows() []row {
	return []row{
		{"B1 the signature is checked over the raw bytes, before JSON is parsed", testRawBytesFirst},
		{"B2 a body over its limit, by the bytes read, is refused before any signature work", testBodyLimit},
		{"B3 limits of rate, time and memory stand before verification", testLimitsBeforeVerification},
		{"B4 an event is identified by what is signed", testIdentityIsSigned},
		{"B5 the id is claimed before the handler runs, and copies are told so", testClaimedBeforeTheHandler},
		{"B6 a failed handler releases its claim, and what nobody handles makes none", testFailureReleases},
		{"B7 the memory store holds 10,000 ids for 24 hours and evicts nothing", testMemoryStoreIsBounded},
		{"B8 claim, complete and release do what their tokens allow", testClaimStore},
		{"B9 a store fault answers 503, and recording that failed does not repeat the effect", testStoreFaults},
		{"B10 a claim lives as long as its handler, and as its owner", testClaimsOutliveTime},
		{"B11 retention covers retries, and what comes back after it is documented", testRetention},
		{"B12 one transaction where it is asked for, a durable queue before the answer, and an id for other APIs", testTransactionsAndHandOff},
		{"B13 GitHub's events, repositories and required fields are checked before the handler", testGitHubPolicy},
		{"B14 events of one shape cannot be told apart, and are kept apart by endpoint and API", testLookAlikes},
		{"B15 a configuration that would verify nothing is refused", testConfigurationChecks},
		{"B16 redirects are refused wherever something is sent", testRedirectsAreRefused},
		{"B17 no secret reaches a log or an answer, and payloads stay data", testSecrecy},
	}
}

const (
	stripeSecret = "whsec_made-up-stripe-secret-7Hq2"
	githubSecret = "made-up-github-secret-4Zx9Wb"
)

// stripe returns a source, and a function that signs for it now.
func stripe(t *testing.T) ichido.Source {
	return newSource(t, "stripe", provider.Config{Secrets: secrets(stripeSecret)})
}

func stripeSigned(t *testing.T, body string) http.Header {
	t.Helper()
	return signed(t, "stripe", provider.SignConfig{Secret: stripeSecret}, body)
}

func stripeEvent(id string) string { return fmt.Sprintf(`{"id":%q,"type":"invoice.paid"}`, id) }

// github returns a source that answers errors for what it cannot read.
func github(t *testing.T, c provider.Config) ichido.Source {
	t.Helper()
	reject := false
	c.AcceptUnreadable = &reject
	if c.Secrets == nil {
		c.Secrets = secrets(githubSecret)
	}
	return newSource(t, "github", c)
}

func githubSigned(t *testing.T, event, id, body string) http.Header {
	t.Helper()
	return signed(t, "github", provider.SignConfig{Secret: githubSecret, Type: event, ID: id}, body)
}

func accept(context.Context, *ichido.Event) error { return nil }

// ordered remembers in which order a provider is asked.
type ordered struct {
	provider  ichido.Provider
	inspector ichido.Inspector
	mu        sync.Mutex
	steps     []string
}

func (o *ordered) step(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = append(o.steps, name)
}

func (o *ordered) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	o.step("verify")
	return o.provider.Verify(d)
}

func (o *ordered) Inspect(eventType string, body []byte) ([]byte, error) {
	o.step("parse")
	return o.inspector.Inspect(eventType, body)
}

func testRawBytesFirst(t *testing.T) {
	const event = `{"id":"evt_1","type":"invoice.paid","amount":100}`
	s := openMemory()
	src := stripe(t)
	o := &ordered{provider: src.Provider, inspector: src.Provider.(ichido.Inspector)}
	src.Provider, src.Handler = o, accept
	url := serve(t, newInbox(t, s, src))

	// The same JSON in other bytes is another message.
	h := stripeSigned(t, event)
	for _, body := range []string{
		strings.ReplaceAll(event, ":", ": "), event + "\n", " " + event, `{"type":"invoice.paid","id":"evt_1","amount":100}`,
		strings.Replace(event, "100", "1e2", 1), strings.Replace(event, "evt_1", `\u0065vt_1`, 1), event[:len(event)-1], "",
	} {
		post(t, url, h, body).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	}
	// Neither is a body parsed whose signature is wrong, nor does it matter
	// whether it could be.
	post(t, url, h, "{").is(t, http.StatusUnauthorized, ichido.CodeSignature)
	post(t, url, nil, event).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	if slices.Contains(o.steps, "parse") {
		t.Errorf("steps were %v: a body was parsed although it was not genuine", o.steps)
	}
	// Bytes that are signed and no JSON are genuine, and then unreadable.
	for _, body := range []string{"{", "no JSON", "", `{"id":"evt_2","id":"evt_3","type":"x"}`, "\xff\xfe"} {
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusBadRequest, ichido.CodeUnreadable)
	}
	o.steps = nil
	post(t, url, h, event).is(t, http.StatusOK, "")
	if want := []string{"verify", "parse"}; !slices.Equal(o.steps, want) {
		t.Errorf("steps were %v, want %v", o.steps, want)
	}
	// White space and order are kept as they were sent.
	strange := "\n { \"type\" : \"invoice.paid\",\t\"id\":\"evt_4\" }\r\n"
	post(t, url, stripeSigned(t, strange), strange).is(t, http.StatusOK, "")
	r := s.list(t, "stripe")
	stored, err := s.Get(t.Context(), r[len(r)-1].ID())
	if err != nil || string(stored.Body) != strange {
		t.Errorf("the body stored is %q, %v; want %q", stored.Body, err, strange)
	}
}

// padded returns an event of exactly size bytes.
func padded(id string, size int) string {
	body := fmt.Sprintf(`{"id":%q,"type":"invoice.paid","pad":""}`, id)
	return body[:len(body)-2] + strings.Repeat("x", size-len(body)) + body[len(body)-2:]
}

func testBodyLimit(t *testing.T) {
	const mebibyte = 1 << 20
	for _, c := range []struct {
		what         string
		limit, bytes int64
	}{{"by default", 0, mebibyte}, {"as configured", 1000, 1000}, {"raised", 4 * mebibyte, 4 * mebibyte}} {
		t.Run(c.what, func(t *testing.T) {
			bodies := make(chan string, 10)
			src := newSource(t, "stripe", provider.Config{Secrets: secrets(stripeSecret), BodyLimit: c.limit})
			w := &watched{Provider: src.Provider}
			src.Provider = w
			src.Handler = func(_ context.Context, e *ichido.Event) error { bodies <- string(e.Body()); return nil }
			s := openMemory()
			in := newInbox(t, s, src)
			url := serve(t, in)
			s.work(t, in)

			// Over the limit: declared, not declared, and declared too small. The
			// signature is right and is not looked at.
			large := padded("evt_large", int(c.bytes)+1)
			h := stripeSigned(t, large)
			post(t, url, h, large).is(t, http.StatusRequestEntityTooLarge, ichido.CodeTooLarge)
			postReader(t, url, h, chunked{strings.NewReader(large)}).is(t, http.StatusRequestEntityTooLarge, ichido.CodeTooLarge)
			for _, declared := range []int64{-1, 0, 1, 10, c.bytes} {
				r := delivery("/", h, large)
				r.ContentLength = declared
				a := direct(in, r)
				a.is(t, http.StatusRequestEntityTooLarge, ichido.CodeTooLarge)
				if a.header.Get("Connection") != "close" {
					t.Error("the connection of a body that was not read to its end stays open")
				}
			}
			if n := w.verified.Load(); n != 0 {
				t.Errorf("%d signatures were checked of bodies that are too large", n)
			}

			// At the limit: the bytes read decide, and the handler gets them all.
			for n, declared := range []int64{c.bytes, -1, 0, 3, c.bytes - 1} {
				body := padded(fmt.Sprint("evt_", n), int(c.bytes))
				r := delivery("/", stripeSigned(t, body), body)
				r.ContentLength = declared
				direct(in, r).is(t, http.StatusOK, "")
				if got := await(t, bodies, "the handler"); got != body {
					t.Errorf("declared %d: the handler got %d bytes, want the %d that were sent", declared, len(got), len(body))
				}
			}
			body := padded("evt_chunked", int(c.bytes))
			postReader(t, url, stripeSigned(t, body), chunked{strings.NewReader(body)}).is(t, http.StatusOK, "")
			if got := await(t, bodies, "the handler"); got != body {
				t.Errorf("the handler got %d bytes of a chunked body, want %d", len(got), len(body))
			}
			// A body shorter than declared is not a body at all.
			r := delivery("/", stripeSigned(t, body), body)
			r.ContentLength = c.bytes
			r.Body = io.NopCloser(strings.NewReader(body[:100]))
			before := w.verified.Load()
			direct(in, r).is(t, http.StatusBadRequest, ichido.CodeIncomplete)
			if w.verified.Load() != before {
				t.Error("an incomplete body was verified")
			}
		})
	}
}

func testLimitsBeforeVerification(t *testing.T) {
	body := stripeEvent("evt_1")
	// serveWatched serves with an admission, and counts verifications.
	serveWatched := func(t *testing.T, a *ichido.Admission) (*ichido.Inbox, *watched) {
		src := stripe(t)
		w := &watched{Provider: src.Provider}
		src.Provider, src.Handler, src.Admission = w, accept, a
		return newInbox(t, openMemory(), src), w
	}
	refused := func(t *testing.T, a answer, w *watched, status int, code string) {
		t.Helper()
		a.is(t, status, code)
		if n := w.verified.Load(); n != 0 {
			t.Errorf("%d signatures were checked before the limit", n)
		}
	}
	t.Run("rate", func(t *testing.T) {
		left := 2
		in, w := serveWatched(t, &ichido.Admission{Allow: func() bool { left--; return left >= 0 }})
		url := serve(t, in)
		for range 2 {
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusOK, "")
		}
		w.verified.Store(0)
		a := post(t, url, stripeSigned(t, body), body)
		refused(t, a, w, http.StatusServiceUnavailable, ichido.CodeOverloaded)
		if a.header.Get("Retry-After") == "" {
			t.Error("the sender is not told when to come back")
		}
	})
	t.Run("memory", func(t *testing.T) {
		in, w := serveWatched(t, &ichido.Admission{Small: 1, Large: 1})
		url := serve(t, in)
		for _, size := range []int{100, 100_000} {
			large := padded("evt_1", size)
			refused(t, post(t, url, stripeSigned(t, large), large), w, http.StatusServiceUnavailable, ichido.CodeOverloaded)
		}
	})
	t.Run("shutdown", func(t *testing.T) {
		a := &ichido.Admission{}
		in, w := serveWatched(t, a)
		a.Drain()
		refused(t, post(t, serve(t, in), stripeSigned(t, body), body), w, http.StatusServiceUnavailable, ichido.CodeDraining)
	})
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			in, w := serveWatched(t, nil)
			began := time.Now()
			refused(t, trickle(t, in, 100_000), w, http.StatusRequestTimeout, ichido.CodeTimeout)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("a slow sender held its connection for %s", took)
			}
		})
	})
	t.Run("the program's rate", func(t *testing.T) {
		s := startLimited(t, "unverified_rate: 3/h")
		codes := map[string]int{}
		for range 40 {
			codes[post(t, s.url+"/hooks/stripe", nil, body).code]++
		}
		if codes[ichido.CodeSignature] == 0 || codes[ichido.CodeOverloaded] < 30 || len(codes) != 2 {
			t.Errorf("40 bad signatures at a rate of 3 an hour are answered %v", codes)
		}
	})
	t.Run("the program's headers", func(t *testing.T) {
		s := startLimited(t, "connections: 100")
		if a := post(t, s.url+"/hooks/stripe", http.Header{"X-Large": {strings.Repeat("x", 64<<10)}}, body); a.status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("64 KiB of headers are answered %d %s", a.status, a.body)
		}
	})
	t.Run("the program's connections", func(t *testing.T) {
		testConnectionLimit(t, strings.TrimPrefix(startLimited(t, "connections: 2").url, "http://"), 2)
	})
}

// startLimited runs the program with limits.
func startLimited(t *testing.T, limits string) *server {
	t.Helper()
	dir := t.TempDir()
	config := write(t, dir, "ichido.yaml", `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
store: sqlite:events.db
limits: {`+limits+`}
sources:
  - {name: stripe, provider: stripe, secrets: [`+stripeSecret+`]}
`)
	return start(t, dir, nil, "--config", config)
}

// testConnectionLimit opens connections that send nothing: those within the
// limit stay open, and one more is closed at once.
func testConnectionLimit(t *testing.T, address string, limit int) {
	t.Helper()
	closed := make(chan error, limit+10)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range limit + 10 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	for range 10 {
		if err := await(t, closed, "a connection over the limit to be closed"); err == nil {
			t.Error("a connection over the limit is answered")
		}
	}
}

// trickle sends a body of so many bytes, one a second, over a connection in
// memory, and returns the answer.
func trickle(t *testing.T, h http.Handler, size int) answer {
	client, conn := net.Pipe()
	l := &oneConnection{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- conn
	s := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		for range size {
			time.Sleep(time.Second)
			if _, err := client.Write([]byte(" ")); err != nil {
				return
			}
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	client.Close()
	<-wrote
	<-served
	return newAnswer(response.StatusCode, response.Header, data)
}

// oneConnection is a listener with a single connection.
type oneConnection struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *oneConnection) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

func testIdentityIsSigned(t *testing.T) {
	t.Run("stripe", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			src := stripe(t)
			src.Handler = accept
			url := serve(t, newInbox(t, s, src))
			body := stripeEvent("evt_1")
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusOK, "")
			// A retry is signed anew, at another time.
			again := signed(t, "stripe", provider.SignConfig{Secret: stripeSecret, Time: time.Now().Add(-time.Minute)}, body)
			again.Set("X-Request-Id", "another")
			if a := post(t, url, again, body); !strings.Contains(a.body, `"duplicate":true`) {
				t.Errorf("a retry is answered %d %s", a.status, a.body)
			}
			if key := s.only(t, "stripe").Key; key != "evt_1" {
				t.Errorf("the key is %s, want the event's id", key)
			}
			// The same id with another body is a conflict, and changes nothing.
			other := `{"id":"evt_1","type":"invoice.voided"}`
			post(t, url, stripeSigned(t, other), other).is(t, http.StatusConflict, ichido.CodeConflict)
		})
	})
	t.Run("discord", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			d := newDiscord(t)
			src := d.source(t)
			src.Handler = accept
			url := serve(t, newInbox(t, s, src))
			const body = `{"id":"846462639134605312","type":2,"data":{"name":"hello"}}`
			post(t, url, d.sign(t, body, time.Now()), body).is(t, http.StatusOK, "")
			post(t, url, d.sign(t, body, time.Now().Add(-time.Minute)), body).is(t, http.StatusOK, "")
			if r := s.only(t, "discord"); r.Key != "846462639134605312" || r.Copies != 1 {
				t.Errorf("the key is %s with %d copies, want the interaction's id with one", r.Key, r.Copies)
			}
		})
	})
	t.Run("github", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			src := github(t, provider.Config{})
			src.Handler = accept
			url := serve(t, newInbox(t, s, src))
			body := createBody
			post(t, url, githubSigned(t, "create", "11111111-1111-1111-1111-111111111111", body), body).is(t, http.StatusOK, "")
			// The same bytes under another delivery, and under another event: the
			// same event, also when the sender really sent them twice.
			for _, h := range []http.Header{
				githubSigned(t, "create", "11111111-1111-1111-1111-111111111111", body),
				githubSigned(t, "create", "22222222-2222-2222-2222-222222222222", body),
				githubSigned(t, "create", "", body),
				githubSigned(t, "delete", "33333333-3333-3333-3333-333333333333", body),
			} {
				if a := post(t, url, h, body); !strings.Contains(a.body, `"duplicate":true`) {
					t.Errorf("the same bytes are answered %d %s", a.status, a.body)
				}
			}
			digest := sha256.Sum256([]byte(body))
			r := s.only(t, "github")
			if r.Key != hex.EncodeToString(digest[:]) || r.Type != "create" || r.TypeSigned {
				t.Errorf("key %s, type %s (signed: %t); want the SHA-256 of the body, create, not signed", r.Key, r.Type, r.TypeSigned)
			}
			// Another body under a delivery id that was seen is another event.
			other := strings.Replace(body, "refs/tags/v1", "refs/tags/v2", 1)
			if a := post(t, url, githubSigned(t, "create", "11111111-1111-1111-1111-111111111111", other), other); !strings.Contains(a.body, `"duplicate":false`) {
				t.Errorf("another body is answered %d %s", a.status, a.body)
			}
		})
		documents(t, providerPage(t, "github"), "Two deliveries with the same bytes are one event, whatever their event and delivery headers say, also when both were genuine.",
			"Ids that identify nothing: X-GitHub-Delivery")
	})
}

// discord is an application with its keys.
type discord struct{ public, seed string }

func newDiscord(t *testing.T) discord {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return discord{hex.EncodeToString(public), hex.EncodeToString(private.Seed())}
}

func (d discord) source(t *testing.T) ichido.Source {
	return newSource(t, "discord", provider.Config{Secrets: secrets(d.public)})
}

func (d discord) sign(t *testing.T, body string, at time.Time) http.Header {
	t.Helper()
	return signed(t, "discord", provider.SignConfig{Secret: d.seed, Time: at}, body)
}
