package conformance

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/sqlite"
)

// recorded are claims that remember how they are used, and fail when told to.
type recorded struct {
	ichido.Claims
	mu             sync.Mutex
	steps          []string
	key            string // the last one claimed
	failClaim      bool
	failCompletion bool
	failRelease    bool
}

var errDisk = fmt.Errorf("disk is gone: %w", ichido.ErrUnavailable)

func (r *recorded) step(name string, fail *bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, name)
	if fail != nil && *fail {
		return errDisk
	}
	return nil
}

func (r *recorded) Claim(ctx context.Context, key string) (ichido.Verdict, string, error) {
	if err := r.step("claim", &r.failClaim); err != nil {
		return 0, "", err
	}
	r.mu.Lock()
	r.key = key
	r.mu.Unlock()
	return r.Claims.Claim(ctx, key)
}

func (r *recorded) Complete(ctx context.Context, key, token string) error {
	if err := r.step("complete", &r.failCompletion); err != nil {
		return err
	}
	return r.Claims.Complete(ctx, key, token)
}

func (r *recorded) Release(ctx context.Context, key, token string) error {
	if err := r.step("release", &r.failRelease); err != nil {
		return err
	}
	return r.Claims.Release(ctx, key, token)
}

// taken returns the steps since it was last asked.
func (r *recorded) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	steps := r.steps
	r.steps = nil
	return steps
}

type inlineHandler = func(ctx context.Context, w http.ResponseWriter, e *ichido.Event) error

// inline returns a Stripe source that is handled during the request.
func inline(t *testing.T, claims ichido.Claims, h inlineHandler) ichido.Source {
	t.Helper()
	src := stripe(t)
	src.Inline, src.Claims = h, claims
	return src
}

func testClaimedBeforeTheHandler(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		claims := &recorded{Claims: s.claims}
		running, release := make(chan struct{}, 100), make(chan struct{})
		open := sync.OnceFunc(func() { close(release) })
		defer open()
		src := inline(t, claims, func(ctx context.Context, w http.ResponseWriter, e *ichido.Event) error {
			claims.step("handle", nil)
			if v, _, err := s.claims.Claim(ctx, claims.key); v != ichido.InProgress || err != nil {
				t.Errorf("while the handler runs, its id can be claimed: %s, %v", v, err)
			}
			running <- struct{}{}
			<-release
			w.Header().Set("X-From", "handler")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "made ", e.Key())
			return nil
		})
		src.HandlerTimeout = time.Minute
		url := serve(t, newInbox(t, s, src))
		body := stripeEvent("evt_1")
		first := make(chan answer, 1)
		go func() {
			a, err := try(url, stripeSigned(t, body), strings.NewReader(body))
			if err != nil {
				t.Error(err)
			}
			first <- a
		}()
		await(t, running, "the handler")
		a := post(t, url, stripeSigned(t, body), body)
		a.is(t, http.StatusServiceUnavailable, ichido.CodeInProgress)
		if a.header.Get("Retry-After") == "" {
			t.Error("the sender of a copy is not told when to come back")
		}
		open()
		if a := await(t, first, "the first answer"); a.status != http.StatusCreated || a.body != "made evt_1" || a.header.Get("X-From") != "handler" {
			t.Errorf("the first answer is %d %q, want the handler's own", a.status, a.body)
		}
		if got, want := claims.taken(), []string{"claim", "handle", "claim", "complete"}; !slices.Equal(got, want) {
			t.Errorf("steps were %v, want %v", got, want)
		}
		if a := post(t, url, stripeSigned(t, body), body); a.status != http.StatusNoContent || a.body != "" {
			t.Errorf("a copy of a completed event is answered %d %q, want 204 and nothing", a.status, a.body)
		}
		if got, want := claims.taken(), []string{"claim"}; !slices.Equal(got, want) {
			t.Errorf("steps of the copy were %v, want %v: no handler", got, want)
		}
	})
}

func testFailureReleases(t *testing.T) {
	failures := []struct {
		what   string
		handle func(w http.ResponseWriter) error
		status int
		code   string
	}{
		{"an error", func(http.ResponseWriter) error { return errors.New("no") }, http.StatusServiceUnavailable, ichido.CodeFailed},
		{"an error after an answer", func(w http.ResponseWriter) error { w.WriteHeader(200); return errors.New("no") }, http.StatusServiceUnavailable, ichido.CodeFailed},
		{"a panic", func(http.ResponseWriter) error { panic("no") }, http.StatusServiceUnavailable, ichido.CodeFailed},
		{"a permanent error", func(http.ResponseWriter) error { return ichido.Permanent(errors.New("no")) }, http.StatusConflict, ichido.CodeRejected},
		{"an answer of 500", func(w http.ResponseWriter) error { w.WriteHeader(500); return nil }, 500, ""},
		{"an answer of 404", func(w http.ResponseWriter) error { http.Error(w, "no", 404); return nil }, 404, ""},
		{"an answer of 304", func(w http.ResponseWriter) error { w.WriteHeader(304); return nil }, 304, ""},
	}
	eachStore(t, func(t *testing.T, s *testStore) {
		claims := &recorded{Claims: s.claims}
		for n, f := range failures {
			fail := true
			src := inline(t, claims, func(_ context.Context, w http.ResponseWriter, _ *ichido.Event) error {
				if fail {
					return f.handle(w)
				}
				return nil
			})
			url := serve(t, newInbox(t, s, src))
			body := stripeEvent(fmt.Sprint("evt_", n))
			for range 2 { // every retry is accepted
				post(t, url, stripeSigned(t, body), body).is(t, f.status, f.code)
				if got, want := claims.taken(), []string{"claim", "release"}; !slices.Equal(got, want) {
					t.Errorf("%s: steps were %v, want %v", f.what, got, want)
				}
			}
			fail = false
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusOK, "")
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusNoContent, "")
			claims.taken()
		}
		stats, err := s.Stats(t.Context())
		if err != nil || stats.Pending != 0 {
			t.Errorf("%d claims are still held, %v", stats.Pending, err)
		}
	})
	t.Run("unsupported", func(t *testing.T) {
		s := openMemory()
		claims := &recorded{Claims: s.claims}
		src := inline(t, claims, func(context.Context, http.ResponseWriter, *ichido.Event) error { t.Error("a handler ran"); return nil })
		src.Handles = func(eventType string) bool { return eventType == "invoice.voided" }
		body := stripeEvent("evt_1")
		if a := post(t, serve(t, newInbox(t, s, src)), stripeSigned(t, body), body); a.status != http.StatusNoContent {
			t.Errorf("an event that nobody handles is answered %d %s, want 204", a.status, a.body)
		}
		if got := claims.taken(); got != nil || len(s.list(t, "")) != 0 {
			t.Errorf("steps were %v: an event that nobody handles made a claim, or was stored", got)
		}
		unhandled := src
		unhandled.Inline = nil
		if _, err := ichido.NewInbox(s, unhandled); err == nil {
			t.Error("a source without any handler was made: its events would be acknowledged and lost")
		}
		// So the first delivery that is handled is not a copy.
		src = inline(t, claims, func(_ context.Context, w http.ResponseWriter, _ *ichido.Event) error { return nil })
		post(t, serve(t, newInbox(t, s, src)), stripeSigned(t, body), body).is(t, http.StatusOK, "")
	})
	t.Run("custom provider", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			runs := 0
			src := ichido.Source{Name: "own", Provider: ownScheme{}, Claims: s.claims, Log: quiet, Inline: func(context.Context, http.ResponseWriter, *ichido.Event) error {
				if runs++; runs == 1 {
					return errors.New("no")
				}
				return nil
			}}
			url := serve(t, newInbox(t, s, src))
			const body = "order 7\npaid"
			post(t, url, nil, body).is(t, http.StatusUnauthorized, ichido.CodeSignature)
			post(t, url, ownSigned(body), body).is(t, http.StatusServiceUnavailable, ichido.CodeFailed)
			post(t, url, ownSigned(body), body).is(t, http.StatusOK, "")
			post(t, url, ownSigned(body), body).is(t, http.StatusNoContent, "")
			if runs != 2 {
				t.Errorf("the handler ran %d times, want 2", runs)
			}
		})
	})
}

// ownScheme is a provider that is in no list: its id is the first line of the
// body, which the signature covers.
type ownScheme struct{}

func ownMAC(body []byte) []byte {
	mac := hmac.New(sha256.New, []byte("made-up-own-secret-3Vb8"))
	mac.Write(body)
	return mac.Sum(nil)
}

func ownSigned(body string) http.Header {
	return http.Header{"X-Own": {hex.EncodeToString(ownMAC([]byte(body)))}}
}

func (ownScheme) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	given, err := hex.DecodeString(d.Header.Get("X-Own"))
	if err != nil || !hmac.Equal(given, ownMAC(d.Body)) {
		return ichido.Proof{}, &ichido.Error{Code: ichido.CodeSignature, Op: "verify"}
	}
	id, _, _ := strings.Cut(string(d.Body), "\n")
	return ichido.Proof{Strength: ichido.Verified, ID: id, Key: id, Fingerprint: sha256.Sum256(d.Body)}, nil
}

func testMemoryStoreIsBounded(t *testing.T) {
	c := &clock{}
	store := memory.New(memory.Options{Clock: c.now})
	claims := store.Claims()
	complete := func(key string) {
		t.Helper()
		v, token, err := claims.Claim(t.Context(), key)
		if v != ichido.Accepted || err != nil {
			t.Fatalf("claim %s: %s, %v", key, v, err)
		}
		if err := claims.Complete(t.Context(), key, token); err != nil {
			t.Fatal(err)
		}
	}
	// Two sources of one application share the store.
	handler := func(context.Context, http.ResponseWriter, *ichido.Event) error { return nil }
	src := inline(t, claims, handler)
	url := serve(t, newInbox(t, nil, src))
	other := src
	other.Name = "other"
	otherURL := serve(t, newInbox(t, nil, other))
	send := func(url, id string) answer {
		t.Helper()
		return post(t, url, stripeSigned(t, stripeEvent(id)), stripeEvent(id))
	}

	send(url, "evt_1").is(t, http.StatusOK, "")
	send(otherURL, "evt_1").is(t, http.StatusOK, "") // an id belongs to its source
	again := src
	send(serve(t, newInbox(t, nil, again)), "evt_1").is(t, http.StatusNoContent, "") // the same source made again
	v, _, err := claims.Claim(t.Context(), "running")
	if v != ichido.Accepted || err != nil {
		t.Fatal(v, err)
	}
	const limit = 10_000
	for n := range limit - 3 {
		complete(fmt.Sprint("filler ", n))
	}

	// At capacity both refuse, and what is there stays.
	for _, u := range []string{url, otherURL} {
		send(u, "evt_new").is(t, http.StatusServiceUnavailable, ichido.CodeFull)
		send(u, "evt_1").is(t, http.StatusNoContent, "")
	}
	c.advance(24*time.Hour - time.Minute)
	send(url, "evt_new").is(t, http.StatusServiceUnavailable, ichido.CodeFull)
	send(url, "evt_1").is(t, http.StatusNoContent, "")
	if v, _, err := claims.Claim(t.Context(), "filler 0"); v != ichido.Duplicate || err != nil {
		t.Errorf("an id that is completed is %s, %v", v, err)
	}

	// After 24 hours completed ids make room; running ones never expire.
	c.advance(2 * time.Minute)
	send(url, "evt_new").is(t, http.StatusOK, "")
	send(url, "evt_1").is(t, http.StatusOK, "")
	c.advance(1000 * 24 * time.Hour)
	if v, _, err := claims.Claim(t.Context(), "running"); v != ichido.InProgress || err != nil {
		t.Errorf("a running id is %s after a long time, %v", v, err)
	}
	documents(t, goDoc(t, "../store/memory", ""), "It never evicts")
	documents(t, goDoc(t, "../store/memory", "Store.Claims"), "A claim is held until it is completed or released")
}

func testClaimStore(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		ctx, c := t.Context(), s.claims
		claim := func(key string, want ichido.Verdict) string {
			t.Helper()
			v, token, err := c.Claim(ctx, key)
			if v != want || err != nil || (token != "") != (want == ichido.Accepted) {
				t.Fatalf("claim %s: %s, token %q, %v; want %s", key, v, token, err, want)
			}
			return token
		}
		lost := func(err error) {
			t.Helper()
			if !errors.Is(err, ichido.ErrLeaseLost) {
				t.Errorf("got %v, want ErrLeaseLost", err)
			}
		}
		// Acquired, pending, completed.
		token := claim("a", ichido.Accepted)
		claim("a", ichido.InProgress)
		lost(c.Complete(ctx, "a", "another token"))
		lost(c.Complete(ctx, "a", ""))
		lost(c.Release(ctx, "a", "another token"))
		lost(c.Complete(ctx, "b", token))
		lost(c.Release(ctx, "b", token))
		claim("a", ichido.InProgress)
		if err := c.Complete(ctx, "a", token); err != nil {
			t.Fatal(err)
		}
		claim("a", ichido.Duplicate)
		lost(c.Complete(ctx, "a", token))
		lost(c.Release(ctx, "a", token)) // never a completed one
		claim("a", ichido.Duplicate)

		// Released, and claimed anew: the old token is worth nothing.
		old := claim("b", ichido.Accepted)
		if err := c.Release(ctx, "b", old); err != nil {
			t.Fatal(err)
		}
		fresh := claim("b", ichido.Accepted)
		if fresh == old {
			t.Error("two claims have one token")
		}
		lost(c.Release(ctx, "b", old)) // never another's claim
		lost(c.Complete(ctx, "b", old))
		claim("b", ichido.InProgress)
		if err := c.Complete(ctx, "b", fresh); err != nil {
			t.Fatal(err)
		}

		// One step: of many at once, one acquires.
		const racers = 64
		var acquired, pending atomic.Int64
		var group sync.WaitGroup
		for range racers {
			group.Go(func() {
				switch v, _, err := c.Claim(ctx, "raced"); {
				case err != nil:
					t.Error(err)
				case v == ichido.Accepted:
					acquired.Add(1)
				case v == ichido.InProgress:
					pending.Add(1)
				}
			})
		}
		group.Wait()
		if acquired.Load() != 1 || pending.Load() != racers-1 {
			t.Errorf("%d of %d acquired, %d found it pending", acquired.Load(), racers, pending.Load())
		}
	})
	t.Run("across a restart", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.db")
		db := openDB(t, path)
		s, err := sqlite.Open(t.Context(), db, sqlite.Options{MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Claims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, token, err := c.Claim(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Complete(t.Context(), "a", token), s.Close(), db.Close()); err != nil {
			t.Fatal(err)
		}
		if v, _, err := openSQLite(t, path).claims.Claim(t.Context(), "a"); v != ichido.Duplicate || err != nil {
			t.Errorf("a completed id is %s after a restart, %v", v, err)
		}
	})
}

func testStoreFaults(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		claims := &recorded{Claims: s.claims}
		effects := 0
		fail := false
		src := inline(t, claims, func(context.Context, http.ResponseWriter, *ichido.Event) error {
			effects++
			if fail {
				return errors.New("no")
			}
			return nil
		})
		url := serve(t, newInbox(t, s, src))
		send := func(id string) answer {
			t.Helper()
			return post(t, url, stripeSigned(t, stripeEvent(id)), stripeEvent(id))
		}
		// Nothing is handled that could not be claimed.
		claims.failClaim = true
		a := send("evt_1")
		a.is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		if effects != 0 || a.header.Get("Retry-After") == "" {
			t.Errorf("%d handlers ran, Retry-After is %q", effects, a.header.Get("Retry-After"))
		}
		claims.failClaim = false

		// The handler succeeds, recording fails: never a 2xx, and never again.
		claims.failCompletion = true
		send("evt_1").is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		claims.failCompletion = false
		for range 3 {
			send("evt_1").is(t, http.StatusServiceUnavailable, ichido.CodeInProgress)
		}
		s.clock.advance(365 * 24 * time.Hour)
		send("evt_1").is(t, http.StatusServiceUnavailable, ichido.CodeInProgress)
		if effects != 1 {
			t.Errorf("the effect happened %d times, want once", effects)
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats.Pending != 1 {
			t.Errorf("%d claims are listed as pending, %v; want 1", stats.Pending, err)
		}

		// A release that fails leaves the claim as well: nobody runs twice.
		fail, claims.failRelease = true, true
		send("evt_2").is(t, http.StatusServiceUnavailable, ichido.CodeFailed)
		send("evt_2").is(t, http.StatusServiceUnavailable, ichido.CodeInProgress)
		if effects != 2 {
			t.Errorf("handlers ran %d times, want 2", effects)
		}
	})
	t.Run("a closed store", func(t *testing.T) {
		db := openDB(t, filepath.Join(t.TempDir(), "events.db"))
		s, err := sqlite.Open(t.Context(), db, sqlite.Options{MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		url := serve(t, newInbox(t, s, inline(t, claims, func(context.Context, http.ResponseWriter, *ichido.Event) error { t.Error("a handler ran"); return nil })))
		stored := stripe(t)
		stored.Handler = accept
		storedURL := serve(t, newInbox(t, s, stored))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		body := stripeEvent("evt_1")
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		post(t, storedURL, stripeSigned(t, body), body).is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
	})
}

func testClaimsOutliveTime(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		running, release := make(chan struct{}, 100), make(chan struct{})
		open := sync.OnceFunc(func() { close(release) })
		defer open()
		src := inline(t, s.claims, func(context.Context, http.ResponseWriter, *ichido.Event) error {
			running <- struct{}{}
			<-release
			return nil
		})
		src.HandlerTimeout = time.Minute
		url := serve(t, newInbox(t, s, src))
		body := stripeEvent("evt_1")
		first := make(chan answer, 1)
		go func() {
			a, err := try(url, stripeSigned(t, body), strings.NewReader(body))
			if err != nil {
				t.Error(err)
			}
			first <- a
		}()
		await(t, running, "the handler")
		for range 3 {
			s.clock.advance(400 * 24 * time.Hour)
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusServiceUnavailable, ichido.CodeInProgress)
		}
		open()
		await(t, first, "the first answer").is(t, http.StatusOK, "")
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusNoContent, "")
	})
	t.Run("in the worker", testLeaseIsRenewed)
	t.Run("orphan", testOrphanNeedsProof)
}

// testLeaseIsRenewed runs a handler for much longer than its lease, beside
// another worker that would take what is free.
func testLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		runs := 0
		src := stripe(t)
		src.HandlerTimeout = time.Hour
		src.Handler = func(ctx context.Context, e *ichido.Event) error {
			runs++
			select {
			case <-time.After(30 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		in := newInbox(t, s, src)
		body := stripeEvent("evt_1")
		direct(in, delivery("/", stripeSigned(t, body), body)).is(t, http.StatusOK, "")
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
		defer cancel()
		var workers sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				w := ichido.NewWorker(s, in)
				w.Lease, w.Log = 10*time.Second, quiet
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		records, err := s.List(t.Context(), ichido.Filter{})
		if err != nil || len(records) != 1 || records[0].State != ichido.Done || records[0].Attempts != 1 || runs != 1 {
			t.Errorf("after %d runs: %+v, %v; want one run, done", runs, records, err)
		}
	})
}

// holdVariable names the database in which a second process holds a claim.
const holdVariable = "ICHIDO_CONFORMANCE_HOLD"

// holdClaim is the second process: it claims an id and never ends by itself.
func holdClaim(path string) int {
	err := func() error {
		ctx := context.Background()
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return err
		}
		s, err := sqlite.Open(ctx, db, sqlite.Options{MinFree: -1})
		if err != nil {
			return err
		}
		claims, err := s.Claims(ctx)
		if err != nil {
			return err
		}
		v, _, err := claims.Claim(ctx, "orphan")
		fmt.Println(v, err)
		bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// testOrphanNeedsProof lets a process die that holds a claim. Before that no
// time frees the claim, for its handler may be running; the death itself does.
func testOrphanNeedsProof(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdVariable+"="+path)
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := holder.StdinPipe() // stays open: the holder waits for a line
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			holder.Process.Kill()
			holder.Wait()
		}
	}()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "accepted <nil>\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}

	c := &clock{}
	c.advance(10 * 365 * 24 * time.Hour)
	s, _ := openSQLiteStore(t, path, sqlite.Options{Clock: c.now, MinFree: -1})
	if _, err := s.Claims(t.Context()); !errors.Is(err, ichido.ErrUnavailable) {
		t.Fatalf("claims of a process that is alive can be had: %v", err)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Pending != 1 {
		t.Errorf("%d claims are listed as pending, %v; want 1", stats.Pending, err)
	}

	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	holder.Wait()
	ended = true
	claims, err := s.Claims(t.Context())
	if err != nil {
		t.Fatalf("own the claims of a process that is gone: %v", err)
	}
	if v, _, err := claims.Claim(t.Context(), "orphan"); v != ichido.Accepted || err != nil {
		t.Errorf("the orphan is %s, %v; want it free", v, err)
	}
}
