package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/provider"
)

// detour is a server that sends everybody elsewhere, and the place elsewhere.
type detour struct {
	url       string
	asked     chan string  // paths that the redirecting server was asked for
	arrived   atomic.Int64 // requests that went along
	elsewhere string
}

func newDetour(t *testing.T, status int) *detour {
	t.Helper()
	d := &detour{asked: make(chan string, 1000)}
	d.elsewhere = serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { d.arrived.Add(1) }))
	d.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", d.elsewhere+r.URL.Path)
		w.WriteHeader(status)
		d.asked <- r.URL.Path
	}))
	return d
}

func testRedirectsAreRefused(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint("confirming ", status), func(t *testing.T) { testConfirmingRedirect(t, status) })
	}
	t.Run("fetching keys", func(t *testing.T) {
		d := newDetour(t, http.StatusFound)
		k := newGeminiKeys(t)
		c := geminiConfig(k)
		c.KeySet = &provider.KeySet{URL: d.url + "/keys"}
		url, _ := serveGemini(t, c)
		post(t, url, k.sign(t, "v1a", "msg_1", time.Now(), batchSucceeded), batchSucceeded).is(t, http.StatusServiceUnavailable, ichido.CodeUnavailable)
		await(t, d.asked, "a request for the keys")
		if d.arrived.Load() != 0 {
			t.Error("a redirect of the key set was followed")
		}
	})
	t.Run("forwarding", func(t *testing.T) {
		d := newDetour(t, http.StatusTemporaryRedirect)
		dir := t.TempDir()
		config := write(t, dir, "ichido.yaml", `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
store: sqlite:events.db
signing: [whsec_bWFkZS11cCBmb3J3YXJkaW5nIGtleSAxMjM0NTY=]
sources:
  - {name: stripe, provider: stripe, secrets: [`+stripeSecret+`], deliver: {to: "`+d.url+`/hook"}}
`)
		s := start(t, dir, nil, "--config", config)
		body := stripeEvent("evt_1")
		post(t, s.url+"/hooks/stripe", stripeSigned(t, body), body).is(t, http.StatusOK, "")
		await(t, d.asked, "the forward")
		if code := s.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if d.arrived.Load() != 0 {
			t.Error("a signed body was carried elsewhere")
		}
		list := events(t, dir, "events.db")
		if len(list.Events) != 1 || list.Events[0].State == string(ichido.Done) || !strings.Contains(list.Events[0].Cause, "307") {
			t.Errorf("the event became %+v", list.Events)
		}
	})
	t.Run("sending", func(t *testing.T) {
		d := newDetour(t, http.StatusPermanentRedirect)
		out := call(t, t.TempDir(), []string{"SECRET=" + stripeSecret}, "send", "stripe", "--to", d.url+"/hook", "--secret", "env:SECRET")
		await(t, d.asked, "the delivery")
		if out.code == 0 || !strings.Contains(out.stdout+out.stderr, "308") || d.arrived.Load() != 0 {
			t.Errorf("exit code %d, %d arrived elsewhere: %s%s", out.code, d.arrived.Load(), out.stdout, out.stderr)
		}
	})
}

func testConfirmingRedirect(t *testing.T, status int) {
	d := newDetour(t, status)
	byHTTP, err := confirm.HTTP(confirm.HTTPOptions{URL: d.url + "/{event.key}", Headers: map[string]string{"Authorization": "Bearer made-up"}, Done: "status == 200"})
	if err != nil {
		t.Fatal(err)
	}
	byGemini, err := confirm.Gemini(confirm.GeminiOptions{APIKey: apiKey, BaseURL: d.url})
	if err != nil {
		t.Fatal(err)
	}
	s := openMemory()
	src := hookSource(t)
	src.Handler = func(context.Context, *ichido.Event) error { t.Error("a handler ran"); return nil }
	for n, ask := range []func(context.Context, *ichido.Event) ([]byte, error){byHTTP, byGemini} {
		src.Name, src.Confirm = fmt.Sprint("source", n), ask
		in := newInbox(t, s, src)
		told := watch(&src)
		worked := newInbox(t, s, src)
		post(t, serve(t, in)+hookPath, secretHeader(hookSecret), `{"name":"operations/1","event_id":"e1"}`).is(t, http.StatusOK, "")
		stop := s.work(t, worked)
		awaitWhat(t, told, "retry")
		stop()
		if r := s.only(t, src.Name); r.State != ichido.Pending || r.Attempts != 1 {
			t.Errorf("a redirected confirmation leaves the event %s after %d attempts (%s)", r.State, r.Attempts, r.Cause)
		}
	}
	if n := d.arrived.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func testSecrecy(t *testing.T) {
	t.Run("in answers and logs", testNoSecretIsTold)
	t.Run("in the program", testTheProgramTellsNoSecret)
	t.Run("payloads are data", testPayloadsAreData)
	t.Run("documented", func(t *testing.T) {
		documents(t, goDoc(t, "..", "Event"), "Treat it as untrusted input in SQL, shells, HTML and requests.")
	})
}

// testNoSecretIsTold takes deliveries through every kind of refusal, and looks
// for secrets, tokens and the signatures that would have been right.
func testNoSecretIsTold(t *testing.T) {
	const body = `{"id":"evt_1","name":"operations/1","type":"marked<script>type"}`
	d := newDiscord(t)
	for _, c := range []struct {
		profile, secret string
		sign            provider.SignConfig
		headers         []string // that hold what must not be told
	}{
		{"stripe", stripeSecret, provider.SignConfig{Secret: stripeSecret}, []string{"Stripe-Signature"}},
		{"github", githubSecret, provider.SignConfig{Secret: githubSecret, Type: "push"}, []string{"X-Hub-Signature-256"}},
		{"hmac", ledgerSecret, provider.SignConfig{Secret: ledgerSecret}, []string{"X-Signature"}},
		{"discord", d.public, provider.SignConfig{Secret: d.seed}, []string{"X-Signature-Ed25519"}},
		{"shared-secret", hookSecret, provider.SignConfig{Secret: hookSecret}, []string{"X-Hook-Secret"}},
	} {
		log := &buffer{}
		var told strings.Builder
		src := newSource(t, c.profile, provider.Config{Secrets: secrets(c.secret)})
		src.PathTokens = []string{hookToken}
		src.Handler = func(context.Context, *ichido.Event) error { return errors.New("no\n\x1b[31m<script>") }
		src.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		src.Observe = func(what, cause string) { fmt.Fprintln(&told, what, cause) }
		s := openMemory()
		q := &failing{Queue: s.Queue}
		in := newInbox(t, q, src)
		right := signed(t, c.profile, c.sign, body)
		wrong := right.Clone()
		for _, name := range c.headers {
			wrong.Set(name, right.Get(name)[1:]+"0")
		}
		send := func(path string, h http.Header, body string) {
			a := direct(in, delivery(path, h, body))
			fmt.Fprintln(&told, a.status, a.body, a.header)
		}
		send("/hooks/"+hookToken[1:], right, body)
		send("/hooks/"+hookToken, wrong, body)
		send("/hooks/"+hookToken, nil, body)
		send("/hooks/"+hookToken, right, body+" ")
		send("/hooks/"+hookToken, signed(t, c.profile, provider.SignConfig{Secret: c.sign.Secret, Type: c.sign.Type, Time: time.Now().Add(-time.Hour)}, body), body)
		q.broken.Store(true)
		send("/hooks/"+hookToken, right, body)
		q.broken.Store(false)
		send("/hooks/"+hookToken, right, body)
		send("/hooks/"+hookToken, signed(t, c.profile, c.sign, "no JSON"), "no JSON")
		direct(in, delivery("/hooks/"+hookToken, nil, ""))

		secretsOf := []string{c.secret, c.sign.Secret, hookToken}
		for _, name := range c.headers {
			value := right.Get(name)
			secretsOf = append(secretsOf, value[strings.LastIndexByte(value, '=')+1:])
		}
		for _, secret := range secretsOf {
			if strings.Contains(told.String()+log.String(), secret) {
				t.Errorf("%s: %q is told: %s%s", c.profile, secret, told.String(), log)
			}
		}
		if strings.Contains(told.String()+log.String(), "<script>") {
			t.Errorf("%s: an answer or a log reflects the payload: %s%s", c.profile, told.String(), log)
		}
	}
}

// testTheProgramTellsNoSecret looks at what the program writes: its log and
// the output of its commands. The destination's URL is a secret, too.
func testTheProgramTellsNoSecret(t *testing.T) {
	const mark = "made-up-webhook-url-token-6Kp"
	asked := make(chan string, 100)
	to := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		discarded := http.MaxBytesReader(w, r.Body, 1<<20)
		discarded.Close()
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "the destination's own words")
		asked <- r.URL.Path
	}))
	dir := t.TempDir()
	config := write(t, dir, "ichido.yaml", `
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
store: sqlite:events.db
sources:
  - name: stripe
    provider: stripe
    path_token: env:TOKEN
    secrets: [env:SECRET]
    deliver: {to: "`+to+"/webhooks/"+mark+`?key=`+mark+`"}
`)
	env := []string{"SECRET=" + stripeSecret, "TOKEN=" + hookToken}
	s := start(t, dir, env, "--config", config, "--verbose")
	body := stripeEvent("evt_1")
	right := stripeSigned(t, body)
	wrong := right.Clone()
	wrong.Set("Stripe-Signature", right.Get("Stripe-Signature")+"0")
	post(t, s.url+"/hooks/stripe/"+hookToken, wrong, body).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	post(t, s.url+"/hooks/stripe/"+hookToken[1:], right, body).is(t, http.StatusNotFound, ichido.CodeNotFound)
	post(t, s.url+"/hooks/stripe/"+hookToken, right, body).is(t, http.StatusOK, "")
	await(t, asked, "the forward")
	s.stop(t, syscall.SIGTERM)
	text := s.log.String()
	id := events(t, dir, "events.db").Events[0].ID
	for _, args := range [][]string{
		{"check", "--config", config},
		{"check", "--config", config, "--json"},
		{"events", "--store", "sqlite:events.db"},
		{"events", "--json", "--store", "sqlite:events.db"},
		{"show", id, "--store", "sqlite:events.db"},
		{"dead", "--store", "sqlite:events.db"},
	} {
		out := call(t, dir, env, args...)
		text += out.stdout + out.stderr
	}
	for _, secret := range []string{stripeSecret, hookToken, mark} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is told: %s", secret, text)
		}
	}
	if !strings.Contains(text, "evt_1") {
		t.Errorf("the event is nowhere in %s", text)
	}
}

// testPayloadsAreData sends strings that mean something to SQL, paths,
// terminals and HTML.
func testPayloadsAreData(t *testing.T) {
	t.Run("SQL", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			src := stripe(t)
			src.Handler = accept
			url := serve(t, newInbox(t, s, src))
			ids := []string{`evt_1';DROP/**/TABLE/**/ichido_events;--`, `evt_1"`, `evt_%`, `evt__`, `evt_1`, `evt_\`, `evt_$1`, `evt_?`}
			for _, id := range ids {
				body := stripeEvent(id)
				if a := post(t, url, stripeSigned(t, body), body); !strings.Contains(a.body, `"duplicate":false`) {
					t.Errorf("%s is answered %d %s", id, a.status, a.body)
				}
			}
			for _, id := range ids {
				records, err := s.List(t.Context(), ichido.Filter{Key: id})
				if err != nil || len(records) != 1 || records[0].Key != id {
					t.Errorf("key %s finds %d records, %v", id, len(records), err)
				}
			}
		})
	})
	t.Run("outgoing requests", func(t *testing.T) {
		var asked atomic.Int64
		api := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		s := openMemory()
		src := hookSource(t)
		var err error
		src.Confirm, err = confirm.Gemini(confirm.GeminiOptions{APIKey: apiKey, BaseURL: api})
		if err != nil {
			t.Fatal(err)
		}
		src.Handler = func(context.Context, *ichido.Event) error { t.Error("a handler ran"); return nil }
		told := watch(&src)
		in := newInbox(t, s, src)
		url := serve(t, in)
		names := []string{"../admin", "operations/../../admin", "operations/..", "operations/a?key=b", "operations/a#b", "operations/a%2f..", "http://evil.example/operations/1", "//evil.example/x", `operations\1`, "operations/a b"}
		for n, name := range names {
			post(t, url+hookPath, secretHeader(hookSecret), fmt.Sprintf(`{"event_id":"e%d","name":%q}`, n, name)).is(t, http.StatusOK, "")
		}
		stop := s.work(t, in)
		for range names {
			awaitWhat(t, told, string(ichido.Dead))
		}
		stop()
		if asked.Load() != 0 {
			t.Errorf("the API was asked %d times for what a payload made up", asked.Load())
		}
	})
	t.Run("terminals", func(t *testing.T) {
		s := openMemory()
		src := stripe(t)
		src.Attempts = 1
		src.Handler = func(_ context.Context, e *ichido.Event) error { return fmt.Errorf("cannot handle %s", e.Payload()) }
		told := watch(&src)
		in := newInbox(t, s, src)
		body := "{\"id\":\"evt_1\",\"type\":\"x\",\"text\":\"\x7f\u202e\u009b31m" + strings.Repeat("long", 1000) + "\"}"
		post(t, serve(t, in), stripeSigned(t, body), body).is(t, http.StatusOK, "")
		stop := s.work(t, in)
		awaitWhat(t, told, string(ichido.Dead))
		stop()
		cause := s.only(t, "stripe").Cause
		if cause == "" || len(cause) > 256 || strings.ContainsFunc(cause, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("the cause is %q, %d bytes; want printable ASCII, at most 256", cause, len(cause))
		}
	})
}
