package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/sqlite"
)

func testRetention(t *testing.T) {
	// GitHub signs no time: what is forgotten can come back.
	t.Run("without a signed time", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			handled := make(chan string, 5)
			src := github(t, provider.Config{})
			src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- e.ID(); return nil }
			in := newInbox(t, s, src)
			url := serve(t, in)
			old := githubSigned(t, "push", "", pushBody)
			send := func(duplicate bool) {
				t.Helper()
				if a := post(t, url, old, pushBody); !strings.Contains(a.body, fmt.Sprintf(`"duplicate":%t`, duplicate)) {
					t.Errorf("answered %d %s, want duplicate %t", a.status, a.body, duplicate)
				}
			}
			send(false)
			stop := s.work(t, in)
			first := await(t, handled, "the handler")
			stop()
			later := s.clock.now().Add(time.Hour)

			// Bodies go first; the key keeps copies away.
			if bodies, keys, err := s.Purge(t.Context(), "github", later, time.Time{}); bodies != 1 || keys != 0 || err != nil {
				t.Fatalf("purge: %d bodies, %d keys, %v", bodies, keys, err)
			}
			send(true)
			if _, err := s.Replay(t.Context(), ichido.Filter{ID: first}, false); !errors.Is(err, ichido.ErrBodyPurged) {
				t.Errorf("replay without a body: %v", err)
			}
			// With the key gone an old body is a new event.
			if _, keys, err := s.Purge(t.Context(), "github", later, later); keys != 1 || err != nil {
				t.Fatalf("purge: %d keys, %v", keys, err)
			}
			send(false)
			stop = s.work(t, in)
			if again := await(t, handled, "the handler"); again != first {
				t.Errorf("the id is %s, and was %s: it is the same webhook", again, first)
			}
			stop()
		})
	})
	// Stripe signs the time: what is forgotten is stale.
	t.Run("with a signed time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New(memory.Options{})
			src := stripe(t)
			src.Handler = accept
			in := newInbox(t, s, src)
			body := stripeEvent("evt_1")
			old := stripeSigned(t, body)
			direct(in, delivery("/", old, body)).is(t, http.StatusOK, "")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := ichido.NewWorker(s, in).Run(ctx); err != nil {
				t.Fatal(err)
			}
			if _, keys, err := s.Purge(t.Context(), "stripe", time.Now(), time.Now()); keys != 1 || err != nil {
				t.Fatalf("purge: %d keys, %v", keys, err)
			}
			direct(in, delivery("/", old, body)).is(t, http.StatusUnauthorized, ichido.CodeSignature)
		})
	})
	t.Run("of inline claims", func(t *testing.T) {
		s := openSQLite(t, t.TempDir()+"/events.db")
		_, token, err := s.claims.Claim(t.Context(), "a")
		if err == nil {
			err = s.claims.Complete(t.Context(), "a", token)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after time.Duration
			want  ichido.Verdict
		}{{29 * 24 * time.Hour, ichido.Duplicate}, {2 * 24 * time.Hour, ichido.Accepted}} {
			s.clock.advance(step.after)
			if v, _, err := s.claims.Claim(t.Context(), "a"); v != step.want || err != nil {
				t.Errorf("%s later a completed id is %s, %v; want %s", step.after, v, err, step.want)
			}
		}
	})
	t.Run("shorter than the sender retries", testRetentionIsChecked)
	t.Run("documented", testOldBodiesAreDocumented)
}

// testRetentionIsChecked configures keys for less time than a sender may send
// an event again.
func testRetentionIsChecked(t *testing.T) {
	for _, c := range []struct {
		provider, secret, keys string
		good                   bool
	}{
		{"stripe", stripeSecret, "29d", false},
		{"stripe", stripeSecret, "30d", true},
		{"github", githubSecret, "71h", false},
		{"github", githubSecret, "72h", true},
		{"github", githubSecret, "forever", true},
		{"hmac", ledgerSecret, "6d", false}, // a sender that does not say: a week
		{"hmac", ledgerSecret, "7d", true},
	} {
		dir := t.TempDir()
		write(t, dir, "ichido.yaml", "sources:\n  - {name: a, provider: "+c.provider+", secrets: ["+c.secret+"], retention: {keys: "+c.keys+"}}\n")
		out := call(t, dir, nil, "check", "ichido.yaml")
		if (out.code == 0) != c.good || !c.good && !strings.Contains(out.stdout, "retention.keys") {
			t.Errorf("%s with keys for %s: exit code %d, %s%s", c.provider, c.keys, out.code, out.stdout, out.stderr)
		}
	}
}

// testOldBodiesAreDocumented looks at the page of every sender whose scheme
// signs no time.
func testOldBodiesAreDocumented(t *testing.T) {
	checked := 0
	for _, name := range provider.Names() {
		p, err := provider.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Variants {
			if v.Off || v.TimeSigned || v.Kind == "jwt" { // a token says itself when it ends
				continue
			}
			checked++
			page := providerPage(t, name)
			if !strings.Contains(page, "can come back after its key is purged") && !strings.Contains(page, "no time is signed, so keep keys until") {
				t.Errorf("the page of %s does not say that old bodies can come back", name)
			}
		}
	}
	if checked < 3 {
		t.Errorf("%d variants without a signed time were found: too few to be true", checked)
	}
	documents(t, providerPage(t, "github"), "no time is signed, so an old body can come back after its key is purged; keep keys until the secret is retired")
}

func testTransactionsAndHandOff(t *testing.T) {
	t.Run("a durable queue before the answer", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			src := stripe(t)
			src.Handler = func(context.Context, *ichido.Event) error { t.Error("a handler ran without a worker"); return nil }
			body := stripeEvent("evt_1")
			post(t, serve(t, newInbox(t, s, src)), stripeSigned(t, body), body).is(t, http.StatusOK, "")
			seen := s
			if s.path != "" { // by another connection, as another process would
				other, _ := openSQLiteStore(t, s.path, sqlite.Options{MinFree: -1})
				seen = &testStore{Archive: other}
			}
			if r := seen.only(t, "stripe"); r.State != ichido.Pending || r.Size != int64(len(body)) {
				t.Errorf("after the answer the event is %s with %d bytes", r.State, r.Size)
			}
		})
	})
	t.Run("separate without the transaction", func(t *testing.T) {
		s := openSQLite(t, t.TempDir()+"/events.db")
		business := newBusiness(t, s)
		claims := &recorded{Claims: s.claims, failCompletion: true}
		url := serve(t, newInbox(t, s, inline(t, claims, func(ctx context.Context, _ http.ResponseWriter, e *ichido.Event) error {
			return business.pay(ctx, business.db, e)
		})))
		body := stripeEvent("evt_1")
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		if n := business.count(t); n != 1 {
			t.Errorf("%d effects; the effect is there although its completion is not recorded", n)
		}
	})
	t.Run("one transaction in the request", func(t *testing.T) { testOneTransaction(t, true) })
	t.Run("one transaction in the worker", func(t *testing.T) { testOneTransaction(t, false) })
	t.Run("an id for other APIs", testIDForOtherAPIs)
	t.Run("documented", func(t *testing.T) {
		documents(t, goDoc(t, "..", ""), "With a transactional handler ([Applier]) the effect and the completion commit together: once, or not at all.",
			"Effects outside the store's transaction are not once.")
		documents(t, goDoc(t, "..", "Event.ID"), "it may serve as the idempotency key of calls to other systems")
		documents(t, goDoc(t, "..", "Claims"), "It is a value of its own beside a [Queue].")
	})
}

// business is a table of effects in the database of the events.
type business struct{ db *sql.DB }

func newBusiness(t *testing.T, s *testStore) business {
	t.Helper()
	if _, err := s.db.Exec("CREATE TABLE payments (event TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return business{s.db}
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (b business) pay(ctx context.Context, db execer, e *ichido.Event) error {
	_, err := db.ExecContext(ctx, "INSERT INTO payments VALUES (?)", e.Key())
	return err
}

func (b business) count(t *testing.T) (n int) {
	t.Helper()
	if err := b.db.QueryRow("SELECT count(*) FROM payments").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// testOneTransaction fails a handler after its effect, and then lets it be.
func testOneTransaction(t *testing.T, inRequest bool) {
	s := openSQLite(t, t.TempDir()+"/events.db")
	business := newBusiness(t, s)
	ran := make(chan error, 10)
	fail := true
	src := stripe(t)
	src.InRequest = inRequest
	src.Backoff = []time.Duration{time.Nanosecond}
	src.Apply = s.tx(func(ctx context.Context, tx *sql.Tx, e *ichido.Event) (err error) {
		defer func() { ran <- err }()
		if err := business.pay(ctx, tx, e); err != nil {
			return err
		}
		if fail {
			return errors.New("after the effect")
		}
		return nil
	})
	in := newInbox(t, s, src)
	url := serve(t, in)
	body := stripeEvent("evt_1")
	if inRequest {
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusServiceUnavailable, ichido.CodeFailed)
		if n := len(s.list(t, "stripe")); n != 0 || business.count(t) != 0 {
			t.Errorf("%d rows and %d effects are left of a failure, want neither", n, business.count(t))
		}
		fail = false
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusOK, "")
	} else {
		post(t, url, stripeSigned(t, body), body).is(t, http.StatusOK, "")
		src.Attempts = 1
		stop := s.work(t, newInbox(t, s, src))
		await(t, ran, "the first attempt")
		stop()
		if r := s.only(t, "stripe"); r.State != ichido.Dead || business.count(t) != 0 {
			t.Errorf("after a failure the event is %s with %d effects, want none", r.State, business.count(t))
		}
		fail = false
		if n, err := s.Replay(t.Context(), ichido.Filter{State: ichido.Dead}, false); n != 1 || err != nil {
			t.Fatalf("replay: %d, %v", n, err)
		}
		stop = s.work(t, in)
		await(t, ran, "the second attempt")
		stop()
	}
	r := s.only(t, "stripe")
	if r.State != ichido.Done || r.Outcome != ichido.Applied || business.count(t) != 1 {
		t.Errorf("the event is %s/%s with %d effects, want done/applied with one", r.State, r.Outcome, business.count(t))
	}
	if a := post(t, url, stripeSigned(t, body), body); !strings.Contains(a.body, `"duplicate":true`) || business.count(t) != 1 {
		t.Errorf("a copy is answered %d %s, with %d effects", a.status, a.body, business.count(t))
	}
}

// testIDForOtherAPIs has a handler fail after it called an API that takes an
// idempotency key.
func testIDForOtherAPIs(t *testing.T) {
	ids := map[string]bool{}
	eachStore(t, func(t *testing.T, s *testStore) {
		charged := map[string]int{} // by idempotency key
		ran := make(chan struct{}, 10)
		src := stripe(t)
		src.Backoff = []time.Duration{time.Nanosecond}
		src.Handler = func(_ context.Context, e *ichido.Event) error {
			defer func() { ran <- struct{}{} }()
			charged[e.ID()]++
			ids[e.ID()] = true
			if e.Attempt() < 3 {
				return errors.New("the answer was lost")
			}
			return nil
		}
		in := newInbox(t, s, src)
		body := stripeEvent("evt_1")
		a := post(t, serve(t, in), stripeSigned(t, body), body)
		stop := s.work(t, in)
		for range 3 {
			await(t, ran, "an attempt")
		}
		stop()
		if len(charged) != 1 {
			t.Errorf("three attempts used %d keys: %v", len(charged), charged)
		}
		for id := range charged {
			if !strings.Contains(a.body, id) {
				t.Errorf("the answer %s does not hold the id %s", a.body, id)
			}
		}
	})
	if len(ids) != 1 {
		t.Errorf("the same webhook has ids %v in different stores, want one", ids)
	}
}

func testConfigurationChecks(t *testing.T) {
	seconds := func(n time.Duration) *time.Duration { d := n * time.Second; return &d }
	t.Run("secrets", func(t *testing.T) {
		for _, profile := range []string{"stripe", "github"} {
			for _, list := range [][]provider.Secret{
				nil, secrets(""), secrets(" "), secrets("\t\n"), secrets("changeme"), secrets("${SECRET}"), secrets("short"),
				secrets(stripeSecret, ""), secrets("whsec_"), secrets(stripeSecret + "\n"),
			} {
				if _, err := provider.New(profile, provider.Config{Secrets: list}); err == nil || !strings.Contains(err.Error(), "secrets") {
					t.Errorf("%s takes the secrets %q: %v", profile, list, err)
				}
			}
			for _, text := range []string{"", "  ", "changeme"} {
				dir := t.TempDir()
				write(t, dir, "ichido.yaml", "sources: [{name: a, provider: "+profile+", secrets: [env:SECRET]}]\n")
				if out := call(t, dir, []string{"SECRET=" + text}, "serve", "--config", "ichido.yaml"); out.code != 2 || !strings.Contains(out.stderr, "secrets[0]") {
					t.Errorf("%s starts with the secret %q: exit code %d, %s", profile, text, out.code, out.stderr)
				}
			}
		}
	})
	t.Run("tolerances", func(t *testing.T) {
		d := newDiscord(t)
		for profile, secret := range map[string]string{"stripe": stripeSecret, "discord": d.public} {
			for _, n := range []time.Duration{0, -1, -300} {
				if _, err := provider.New(profile, provider.Config{Secrets: secrets(secret), Tolerance: seconds(n)}); err == nil || !strings.Contains(err.Error(), "tolerance") {
					t.Errorf("%s takes a tolerance of %d s: %v", profile, n, err)
				}
			}
			if _, err := provider.New(profile, provider.Config{Secrets: secrets(secret), Tolerance: seconds(60)}); err != nil {
				t.Error(err)
			}
			// In code the type leaves no room for what is no number; a file does.
			for _, text := range []string{"-1s", "0s", "0", "NaN", ".nan", "nan", "inf", ".inf", "+Inf", "-.inf", "1e999s", "300", "''", "9999999999h"} {
				dir := t.TempDir()
				write(t, dir, "ichido.yaml", "sources: [{name: a, provider: "+profile+", secrets: ["+secret+"], tolerance: "+text+"}]\n")
				if out := call(t, dir, nil, "check", "ichido.yaml"); out.code != 2 || !strings.Contains(out.stdout, "tolerance") {
					t.Errorf("%s takes a tolerance of %s: exit code %d, %s", profile, text, out.code, out.stdout)
				}
			}
		}
	})
	t.Run("signatures", testExactlySixtyFourDigits)
	t.Run("ids", func(t *testing.T) {
		s := openMemory()
		src := stripe(t)
		src.Handler = accept
		url := serve(t, newInbox(t, s, src))
		for _, id := range []string{``, `"id":"",`, `"id":null,`, `"id":7,`, `"id":["evt_1"],`, `"id":{},`, `"id":true,`} {
			body := `{` + id + `"type":"invoice.paid"}`
			post(t, url, stripeSigned(t, body), body).is(t, http.StatusConflict, ichido.CodeRejected)
		}
		for _, r := range s.list(t, "stripe") {
			if r.State != ichido.Quarantined {
				t.Errorf("an event without an id is %s", r.State)
			}
		}
	})
}

// testExactlySixtyFourDigits spells SHA-256 signatures in other ways.
func testExactlySixtyFourDigits(t *testing.T) {
	body := stripeEvent("evt_1")
	for _, c := range []struct {
		profile, header string
		sign            func() http.Header
		src             ichido.Source
	}{
		{"stripe", "Stripe-Signature", func() http.Header { return stripeSigned(t, body) }, stripe(t)},
		{"github", "X-Hub-Signature-256", func() http.Header { return githubSigned(t, "an_event", "", body) }, github(t, provider.Config{})},
	} {
		c.src.Handler = accept
		s := openMemory()
		url := serve(t, newInbox(t, s, c.src))
		good := c.sign().Get(c.header)
		cut := len(good) - 64
		head, mac := good[:cut], good[cut:]
		for _, wrong := range []string{
			"", mac[:63], mac[:62], mac[1:], mac[:32], mac + "0", mac + mac, "0" + mac, mac[:63] + "g", mac[:63] + " ", " " + mac[:63], mac[:63] + "\u00e9",
			"0x" + mac[:62], strings.Repeat("z", 64), mac[:32] + ":" + mac[32:], mac[:32] + " " + mac[32:], "%" + mac[1:],
		} {
			h := c.sign()
			h.Set(c.header, head+wrong)
			if a := direct(newInbox(t, s, c.src), delivery("/", h, body)); a.status != http.StatusUnauthorized || a.code != ichido.CodeSignature {
				t.Errorf("%s takes the signature %q: %d %s", c.profile, head+wrong, a.status, a.body)
			}
		}
		if n := len(s.list(t, "")); n != 0 {
			t.Errorf("%d events are stored", n)
		}
		post(t, url, c.sign(), body).is(t, http.StatusOK, "")
		// The case of digits makes no second event.
		h := c.sign()
		h.Set(c.header, head+strings.ToUpper(mac))
		if a := post(t, url, h, body); a.status != http.StatusUnauthorized && !strings.Contains(a.body, `"duplicate":true`) {
			t.Errorf("upper case is answered %d %s", a.status, a.body)
		}
	}
}
