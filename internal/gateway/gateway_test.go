package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/sqlite"
)

const (
	githubSecret = "github-secret-0123456789"
	pathToken    = "path-token-0123456789abcdef"
	adminToken   = "admin-token-0123456789abcdef"
)

// rig is a running gateway.
type rig struct {
	*Gateway
	t      *testing.T
	store  *sqlite.Store
	log    *bytes.Buffer
	mu     *sync.Mutex
	reload string
}

// lockedWriter is a log that a test may read while it is written.
type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func yaml(sources string) string {
	sum := sha256.Sum256([]byte(adminToken))
	return "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0', tokens: ['sha256:" + hex.EncodeToString(sum[:]) + "']}\nsources:\n" + sources
}

const githubSource = "  - {name: github, provider: github, secrets: [" + githubSecret + "]}\n"

// start runs a gateway until the test ends.
func start(t *testing.T, file string) *rig {
	t.Helper()
	r := open(t, file)
	stop := r.run()
	t.Cleanup(stop)
	return r
}

// open makes a gateway and its store, which is closed when the test ends.
func open(t *testing.T, file string) *rig {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "ichido.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: store, log: &bytes.Buffer{}, mu: &sync.Mutex{}, reload: file}
	g, err := New(Options{
		Config: config.Parse([]byte(file)), Store: store,
		Reload: func() (*config.File, error) { return config.Parse([]byte(r.reload)), nil },
		Getenv: func(string) (string, bool) { return "", false },
		Log:    slog.New(slog.NewJSONHandler(lockedWriter{r.mu, r.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Gateway = g
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), db.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// run runs the gateway until the function that it returns is called.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("gateway ended with: %v", err)
		}
	}
}

// do sends a request and returns status, body and header.
func (r *rig) do(method, path string, header http.Header, body string) (int, string, http.Header) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.IngestAddr()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

func signGitHub(t *testing.T, body string) http.Header {
	t.Helper()
	h, err := provider.Sign("github", provider.SignConfig{Secret: githubSecret, Type: "ping", Time: time.Now()}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// await waits until the event with the id is in a state.
func (r *rig) await(id string, state ichido.State) ichido.Record {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		rec, err := r.store.Get(r.t.Context(), id)
		if err == nil && rec.State == state {
			return rec
		}
		select {
		case <-deadline:
			r.t.Fatalf("event %s is %s (%s), %v; want %s", id, rec.State, rec.Cause, err, state)
		case <-tick.C:
		}
	}
}

func idOf(t *testing.T, body string) string {
	t.Helper()
	var reply struct{ ID string }
	if err := json.Unmarshal([]byte(body), &reply); err != nil || reply.ID == "" {
		t.Fatalf("no id in %q: %v", body, err)
	}
	return reply.ID
}

func TestPathsMatchWithOneSlashAndNothingRedirects(t *testing.T) {
	r := start(t, yaml(githubSource+"  - {name: hooked, provider: github, secrets: ["+githubSecret+"], path_token: "+pathToken+"}\n"+
		"  - {name: root, provider: github, secrets: ["+githubSecret+"], path: /, path_token: root-"+pathToken+"}\n"))
	for i, test := range []struct {
		path string
		want int
	}{
		{"/hooks/github", 200},
		{"/hooks/github/", 200},
		{"//hooks/github", 404},
		{"/hooks/../hooks/github", 404},
		{"/hooks/%67ithub", 404},
		{"/hooks/github//", 404},
		{"/HOOKS/github", 404},
		{"/", 404},
		{"/hooks/hooked", 404},
		{"/hooks/hooked/" + pathToken, 200},
		{"/hooks/hooked/" + pathToken + "/", 200},
		{"/hooks/hooked/" + pathToken + "x", 404},
		{"/hooks/hooked/x/" + pathToken, 404},
		{"/root-" + pathToken, 200},
		{"/root-" + pathToken + "/", 200},
		{"/root-" + pathToken + "x", 404},
		{"/" + pathToken, 404},
	} {
		body := fmt.Sprintf(`{"zen":"z","hook_id":%d,"hook":{}}`, i)
		status, text, _ := r.do("POST", test.path, signGitHub(t, body), body)
		if status != test.want {
			t.Errorf("%s answered %d, want %d", test.path, status, test.want)
		}
		if test.want == 404 && !strings.Contains(text, `"code":"not_found"`) {
			t.Errorf("%s answered %q", test.path, text)
		}
	}
	if status, _, h := r.do("GET", "/hooks/github", nil, ""); status != 405 || h.Get("Allow") != "POST" {
		t.Errorf("GET answered %d, Allow %q", status, h.Get("Allow"))
	}
}

func TestHeaderThatIsTooLargeIs431(t *testing.T) {
	r := start(t, yaml(githubSource))
	h := http.Header{"X-Pad": {strings.Repeat("x", 33<<10)}}
	if status, _, _ := r.do("POST", "/hooks/github", h, "{}"); status != 431 {
		t.Errorf("answered %d", status)
	}
}

func TestEventIsForwardedOnceSignedAndWithItsId(t *testing.T) {
	type delivery struct {
		header http.Header
		body   string
	}
	got := make(chan delivery, 10)
	status := make(chan int, 10)
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- delivery{req.Header, string(body)}
		w.WriteHeader(<-status)
	}))
	defer destination.Close()
	const signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	r := start(t, "signing: ["+signing+"]\n"+yaml("  - {name: github, provider: github, secrets: ["+githubSecret+"], deliver: {to: '"+destination.URL+"/in', backoff: [1ms]}}\n"))
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	h := signGitHub(t, body)
	h.Set("Cookie", "session=1")
	status <- 500
	status <- 204
	_, text, _ := r.do("POST", "/hooks/github", h, body)
	id := idOf(t, text)
	first, second := <-got, <-got
	for i, d := range []delivery{first, second} {
		if d.body != body || d.header.Get("Webhook-Id") != id || d.header.Get("Ichido-Attempt") != fmt.Sprint(i+1) || d.header.Get("X-Github-Event") != "ping" {
			t.Errorf("attempt %d: %q %v", i+1, d.body, d.header)
		}
		if d.header.Get("Cookie") != "" || d.header.Get("X-Hub-Signature-256") != "" {
			t.Errorf("attempt %d carries the sender's headers: %v", i+1, d.header)
		}
		src, err := provider.New("standard-webhooks", provider.Config{Secrets: []provider.Secret{{Value: signing}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Provider.Verify(&ichido.Delivery{Method: "POST", Header: d.header, Body: []byte(d.body), ReceivedAt: time.Now()}); err != nil {
			t.Errorf("attempt %d does not verify as a standard webhook: %v", i+1, err)
		}
	}
	if rec := r.await(id, ichido.Done); rec.Outcome != ichido.Forwarded || rec.Attempts != 2 {
		t.Errorf("outcome %s after %d attempts", rec.Outcome, rec.Attempts)
	}
}

func TestAdminDeniesByDefault(t *testing.T) {
	r := start(t, yaml(githubSource))
	get := func(method, path, token string, header ...string) int {
		req, err := http.NewRequest(method, "http://"+r.AdminAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, route := range []struct{ method, path string }{
		{"GET", "/v1/stats"},
		{"GET", "/v1/events"},
		{"GET", "/v1/events/ev_00000000000000000000000000"},
		{"POST", "/v1/replay?state=dead"},
	} {
		for _, token := range []string{"", "wrong", adminToken[:20], adminToken + "x"} {
			if got := get(route.method, route.path, token); got != 401 {
				t.Errorf("%s %s with token %q answered %d", route.method, route.path, token, got)
			}
		}
		if got := get(route.method, route.path, adminToken); got == 401 || got >= 500 {
			t.Errorf("%s %s with the token answered %d", route.method, route.path, got)
		}
	}
	if got := get("POST", "/v1/replay?state=dead", adminToken, "Sec-Fetch-Site", "cross-site"); got != 403 {
		t.Errorf("cross-site replay answered %d", got)
	}
	if got := get("POST", "/v1/replay", adminToken); got != 400 {
		t.Errorf("replay of everything answered %d, want 400", got)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if got := get("GET", path, ""); got != 200 {
			t.Errorf("%s answered %d", path, got)
		}
	}
}

func TestFailedStoreStopsTheGateway(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "ichido.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{})
	g, err := New(Options{Config: config.Parse([]byte(yaml(githubSource))), Store: failing{store, failed}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	close(failed)
	if err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("Run returned %v", err)
	}
	if err := errors.Join(store.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}

// failing is a store that says it failed.
type failing struct {
	*sqlite.Store
	failed chan struct{}
}

func (f failing) Failed() <-chan struct{} { return f.failed }
func (f failing) Err() error              { return errors.New("disk gone") }

func TestConfigurationProblemsNameTheirPlace(t *testing.T) {
	for _, test := range []struct{ name, sources, want string }{
		{"empty secret", "  - {name: a, provider: github, secrets: ['']}\n", "sources[0].secrets[0]"},
		{"unknown provider", "  - {name: a, provider: gitbub}\n", "gitbub"},
		{"negative tolerance", "  - {name: a, provider: stripe, secrets: [stripe-secret-0123456789], tolerance: 0s}\n", "tolerance"},
		{"short keys", "  - {name: a, provider: stripe, secrets: [stripe-secret-0123456789], retention: {keys: 1h}}\n", "sources[0].retention.keys: is shorter than"},
		{"short path token", "  - {name: a, provider: github, secrets: [" + githubSecret + "], path_token: abc}\n", "sources[0].path_token: must be at least 16"},
		{"bad expression", "  - {name: a, provider: github, secrets: [" + githubSecret + "], confirm: {http: {url: 'https://x.example/{payload.id}', done: 'body.('}}}\n", "sources[0].confirm"},
		{"both API and none", "  - {name: a, provider: gemini}\n", "sources[0]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := config.Parse([]byte(yaml(test.sources)))
			Check(file, func(string) (string, bool) { return "", false }, SecretsHere)
			if err := file.Problems(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("problems: %v; want one with %q", err, test.want)
			}
		})
	}
}

func TestSenderThatGoesAwayDoesNotUndoTheCommit(t *testing.T) {
	r := start(t, yaml(githubSource))
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "/hooks/github", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = signGitHub(t, body)
	cancel()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != 200 {
		t.Fatalf("answered %d", w.Code)
	}
	r.await(idOf(t, w.Body.String()), ichido.Done)
}

func TestSecretsAreInNoLogReplyOrMetric(t *testing.T) {
	r := start(t, yaml(githubSource+"  - {name: hooked, provider: github, secrets: ["+githubSecret+"], path_token: "+pathToken+"}\n"))
	body := `{"zen":"z","hook_id":1,"hook":{}}`
	good := signGitHub(t, body)
	expected := strings.TrimPrefix(good.Get("X-Hub-Signature-256"), "sha256=")
	var replies strings.Builder
	for _, mutate := range []func(http.Header){
		func(h http.Header) { h.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64)) },
		func(h http.Header) { h.Del("X-Hub-Signature-256") },
		func(h http.Header) { h.Set("X-Hub-Signature-256", "junk") },
	} {
		h := good.Clone()
		mutate(h)
		for _, path := range []string{"/hooks/github", "/hooks/hooked/" + pathToken, "/hooks/hooked/wrong", "/nowhere/" + pathToken} {
			_, text, header := r.do("POST", path, h, body)
			fmt.Fprintln(&replies, text, header)
		}
	}
	res, err := http.Get("http://" + r.AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(res.Body)
	res.Body.Close()
	r.mu.Lock()
	all := replies.String() + string(metrics) + r.log.String()
	r.mu.Unlock()
	if !strings.Contains(all, "signature_invalid") {
		t.Fatal("the refusals are in no output: the test sees nothing")
	}
	for _, canary := range []string{githubSecret, pathToken, adminToken, expected} {
		if strings.Contains(strings.ToLower(all), strings.ToLower(canary)) {
			t.Errorf("%s… is in an output", canary[:8])
		}
	}
}
