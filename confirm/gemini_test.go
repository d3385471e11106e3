package confirm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/standin"
)

const testKey = "AIza-test-key-0123456789"

// verdict names what a confirmation's error means to a worker.
func verdict(err error) string {
	switch kind := fmt.Sprintf("%T", errors.Unwrap(err)); {
	case err == nil:
		return "confirmed"
	case errors.Is(err, ichido.ErrNotYet):
		return "not yet"
	case errors.Is(err, ichido.ErrRefuted):
		return "refuted"
	case strings.HasSuffix(kind, ".permanent"):
		return "dead"
	case strings.HasSuffix(kind, ".retryAfter"):
		return "later"
	}
	return "failed"
}

func event(eventType, payload string) *facts {
	return &facts{id: "ev_1", source: "gemini", key: "k", eventType: eventType, payload: []byte(payload), receivedAt: time.Now(), attempt: 1}
}

func mustGemini(t *testing.T, o GeminiOptions) *gemini {
	t.Helper()
	if o.APIKey == "" {
		o.APIKey = testKey
	}
	g, err := newGemini(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

// gemini runs a stand-in for the API, and returns it and a confirmation by it.
func startGemini(t *testing.T) (*standin.Gemini, *gemini) {
	t.Helper()
	api := standin.NewGemini(testKey)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, mustGemini(t, GeminiOptions{BaseURL: server.URL})
}

func TestTheAPIDecidesWhetherAnEventIsTrue(t *testing.T) {
	api, g := startGemini(t)
	for _, c := range []struct{ name, state, eventType, want string }{
		// A premature or forged "completed" does nothing.
		{"batches/b", standin.Running, "batch.succeeded", "not yet"},
		{"operations/o", standin.Running, "", "not yet"},
		{"models/veo-3.1/operations/o", standin.Running, "video.generated", "not yet"},
		{"interactions/i", standin.Running, "interaction.completed", "not yet"},
		{"interactions/i", "queued", "interaction.completed", "not yet"},
		{"interactions/i", "a_status_of_next_year", "interaction.completed", "not yet"},

		{"batches/b", standin.Succeeded, "batch.succeeded", "confirmed"},
		{"batches/b", standin.Failed, "batch.failed", "confirmed"},
		{"batches/b", standin.Cancelled, "batch.cancelled", "confirmed"},
		{"batches/b", standin.Expired, "batch.expired", "confirmed"},
		{"batches/b", "partially_succeeded", "batch.succeeded", "refuted"}, // done with an error, as the stand-in has it
		{"operations/o", standin.Succeeded, "", "confirmed"},
		{"operations/o", standin.Failed, "", "confirmed"},
		{"models/veo-3.1/operations/o", standin.Succeeded, "video.generated", "confirmed"},
		{"models/veo-3.1/operations/o", standin.Failed, "video.generated", "confirmed"},
		{"tunedModels/m/operations/o", standin.Succeeded, "", "confirmed"},
		{"fileSearchStores/s/operations/o", standin.Succeeded, "some.type", "confirmed"},
		{"interactions/i", standin.Succeeded, "interaction.completed", "confirmed"},
		{"interactions/i", "incomplete", "interaction.completed", "confirmed"},
		{"interactions/i", "budget_exceeded", "interaction.failed", "confirmed"},
		{"interactions/i", standin.Failed, "interaction.failed", "confirmed"},
		{"interactions/i", standin.Cancelled, "interaction.cancelled", "confirmed"},
		{"interactions/i", standin.RequiresAction, "interaction.requires_action", "confirmed"},
		{"interactions/i", standin.RequiresAction, "interaction.completed", "not yet"},
		{"interactions/i", standin.RequiresAction, "", "not yet"},
		{"interactions/i", standin.Succeeded, "video.generated", "confirmed"},

		// A type that claims another outcome than the API tells.
		{"batches/b", standin.Failed, "batch.succeeded", "refuted"},
		{"batches/b", standin.Expired, "batch.succeeded", "refuted"},
		{"batches/b", standin.Succeeded, "batch.failed", "refuted"},
		{"batches/b", standin.Cancelled, "batch.expired", "refuted"},
		{"interactions/i", standin.Failed, "interaction.completed", "refuted"},
		{"interactions/i", standin.Succeeded, "interaction.failed", "refuted"},
		{"interactions/i", standin.Succeeded, "interaction.cancelled", "refuted"},
		{"interactions/i", standin.Succeeded, "interaction.requires_action", "refuted"},
		// A type that claims none.
		{"batches/b", standin.Failed, "batch.something_new", "confirmed"},
		{"batches/b", standin.Failed, "", "confirmed"},
	} {
		api.Set(c.name, c.state)
		state, err := g.confirm(t.Context(), event(c.eventType, `{"name":"`+c.name+`"}`))
		if got := verdict(err); got != c.want || (state != nil) != (c.want == "confirmed" || c.want == "refuted") {
			t.Errorf("%s is %s, event %q: %s, want %s (%v)", c.name, c.state, c.eventType, got, c.want, err)
		}
		if err == nil && stringAt(state, "name") != c.name && "interactions/"+stringAt(state, "id") != c.name {
			t.Errorf("%s: state %s", c.name, state)
		}
	}
}

func TestWhatAPayloadNames(t *testing.T) {
	long := strings.Repeat("x", 128)
	for _, c := range []struct{ eventType, payload, want string }{
		{"", `{"operation":{"name":"operations/a"}}`, "operations/a"},
		{"", `{"operation":{"name":""},"name":"operations/b"}`, "operations/b"},
		{"", `{"operation":{},"name":"models/m/operations/c"}`, "models/m/operations/c"},
		{"", `{"operation":"operations/x","name":"batches/d","state":"SUCCEEDED"}`, "batches/d"},
		{"batch.succeeded", `{"type":"batch.succeeded","data":{"id":"batches/e"}}`, "batches/e"},
		{"batch.succeeded", `{"data":{"id":"batch_123456"}}`, "batches/batch_123456 guessed"},
		{"batch.failed", `{"data":{"id":"1","name":"batches/1"}}`, "batches/1"},
		{"interaction.completed", `{"data":{"id":"v1_ChdqTmN6"}}`, "interactions/v1_ChdqTmN6"},
		{"interaction.completed", `{"data":{"id":"interactions/v1_ChdqTmN6"}}`, "interactions/v1_ChdqTmN6"},
		{"video.generated", `{"data":{"id":"models/veo/operations/1","file_name":"files/2"}}`, "models/veo/operations/1"},
		{"video.generated", `{"data":{"id":"1"}}`, "operations/1 guessed"},
		{"video.generated", `{"data":{"id":"interactions/1"}}`, "interactions/1"},
		{"batch.succeeded", `{"name":"my batch","data":{"id":"batches/` + long + `"}}`, "batches/" + long},
		{"", `{"name":"batches/1","data":{"id":"batches/1"}}`, "batches/1"},

		{"", ``, ""},
		{"", `[]`, ""},
		{"", `{`, ""},
		{"", `{}`, ""},
		{"", `{"NAME":"batches/1"}`, ""},
		{"", `{"name":["batches/1"]}`, ""},
		{"", `{"data":{"id":"123"}}`, ""},
		{"other.type", `{"data":{"id":"123"}}`, ""},
		{"batch.succeeded", `{"data":{"id":""}}`, ""},
		{"batch.succeeded", `{"data":{"id":1}}`, ""},
		{"batch.succeeded", `{"name":"operations/1"}`, ""},
		{"interaction.completed", `{"data":{"id":"batches/1"}}`, ""},
		{"", `{"name":"batches/1","data":{"id":"batches/2"}}`, ""},
		{"batch.succeeded", `{"operation":{"name":"batches/1"},"data":{"id":"2"}}`, ""},
	} {
		got := ""
		r, err := findName(event(c.eventType, c.payload))
		if err == nil {
			got = r.String()
		}
		if r.guessed {
			got += " guessed"
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q (%v)", c.eventType, c.payload, got, c.want, err)
		}
	}
}

// hostile lists names that must never reach a URL.
var hostile = [...]string{
	"batches/..", "batches/.", "batches/../files/1", "batches//1", "/batches/1", "batches/1/", "batches/1/2", "batches/1?key=x",
	"batches/1#x", "batches/%2e%2e", "batches/1%2f..", "batches/1:cancel", "batches/1 ", "batches/1\n", "batches/1\x00", "batches/é",
	"batches\\1", "batches/1\\..\\x", "batches/@evil.test", "//evil.test/batches/1", "https://evil.test/batches/1", "batches/1;x", "BATCHES/1",
	"files/1", "models/m", "models/m/operations", "models/m/operations/", "models/../operations/1", "models/m/files/1", "projects/p/operations/1",
	"models/m/operations/1/x", "batches/" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0",
	"..", ".", "/", "batches", "interactions/a b",
}

func TestHostileNamesAreNeverAsked(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.RequestURI) }))
	defer server.Close()
	g := mustGemini(t, GeminiOptions{BaseURL: server.URL})
	for _, name := range hostile {
		quoted := fmt.Sprintf("%q", name)
		quoted = strings.ReplaceAll(strings.ReplaceAll(quoted, `\x00`, `\u0000`), "é", "\u00e9")
		for _, payload := range []string{`{"operation":{"name":%s}}`, `{"name":%s}`, `{"data":{"id":%s}}`, `{"data":{"name":%s}}`} {
			for _, eventType := range []string{"", "batch.succeeded", "interaction.completed"} {
				if eventType != "" && strings.Contains(payload, `"id"`) && validSegment(name) {
					continue // an id like "batches" is one
				}
				_, err := g.confirm(t.Context(), event(eventType, fmt.Sprintf(payload, quoted)))
				if verdict(err) != "dead" {
					t.Errorf("%q as %q: %v", name, eventType, err)
				}
			}
		}
	}
	if len(asked) != 0 {
		t.Errorf("asked for %q", asked)
	}
}

// The table must catch a check that looks at prefixes only: else the test
// above proves nothing.
func TestTheHostileTableCatchesAPrefixCheck(t *testing.T) {
	caught := 0
	for _, name := range hostile {
		for _, prefix := range []string{"batches/", "models/", "operations/", "interactions/"} {
			if strings.HasPrefix(name, prefix) {
				caught++
			}
		}
	}
	if caught < 15 {
		t.Errorf("only %d rows get past a prefix check", caught)
	}
}

func FuzzPayloadsNameSafeResources(f *testing.F) {
	f.Add("batch.succeeded", `{"data":{"id":"batches/1"}}`)
	f.Add("", `{"operation":{"name":"models/m/operations/o"},"name":"x"}`)
	f.Add("interaction.completed", `{"data":{"id":"../x","name":[]}}`)
	f.Fuzz(func(t *testing.T, eventType, payload string) {
		r, err := findName(event(eventType, payload))
		if err != nil {
			return
		}
		if again, ok := parseResource(r.String()); !ok || again.String() != r.String() {
			t.Errorf("%s %s: %q", eventType, payload, r)
		}
	})
}

func FuzzNamesStayInsideTheirPath(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	f.Add("models/m/operations/o")
	f.Fuzz(func(t *testing.T, name string) {
		r, ok := parseResource(name)
		if !ok {
			return
		}
		u, err := url.Parse("https://api.test/v1beta/" + r.String())
		if err != nil || u.Host != "api.test" || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" || u.Path != "/v1beta/"+name ||
			u.JoinPath().Path != u.Path {
			t.Errorf("%q became %v, %v", name, u, err)
		}
	})
}

func TestAnUnknownNameIsNotAskedForDays(t *testing.T) {
	_, g := startGemini(t)
	for _, c := range []struct {
		age           time.Duration
		eventType, id string
		want          string
	}{
		{0, "batch.succeeded", "batches/none", "not yet"},
		{9 * time.Minute, "batch.succeeded", "batches/none", "not yet"},
		{11 * time.Minute, "batch.succeeded", "batches/none", "refuted"},
		{11 * time.Minute, "interaction.completed", "v1_none", "refuted"},
		{23 * time.Hour, "batch.succeeded", "batches/none", "refuted"},
		{25 * time.Hour, "batch.succeeded", "batches/none", "dead"},
		{9 * time.Minute, "batch.succeeded", "none", "not yet"},
		{11 * time.Minute, "batch.succeeded", "none", "dead"},
		{11 * time.Minute, "video.generated", "none", "dead"},
	} {
		e := event(c.eventType, `{"data":{"id":"`+c.id+`"}}`)
		e.receivedAt = time.Now().Add(-c.age)
		if _, err := g.confirm(t.Context(), e); verdict(err) != c.want {
			t.Errorf("%s after %v: %v, want %s", c.id, c.age, err, c.want)
		}
	}
	patient := mustGemini(t, GeminiOptions{BaseURL: g.base, NotFoundFor: 2 * time.Hour})
	e := event("batch.succeeded", `{"data":{"id":"batches/none"}}`)
	e.receivedAt = time.Now().Add(-time.Hour)
	if _, err := patient.confirm(t.Context(), e); verdict(err) != "not yet" {
		t.Errorf("NotFoundFor is not read: %v", err)
	}
}

func TestTheKeyIsInItsHeaderAndNowhereElse(t *testing.T) {
	var uri, key string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri, key = r.Method+" "+r.RequestURI, r.Header.Get("x-goog-api-key")
		io.WriteString(w, `{"name":"batches/1","done":true,"response":{}}`)
	}))
	defer server.Close()
	state, err := mustGemini(t, GeminiOptions{BaseURL: server.URL + "/"}).confirm(t.Context(), event("", `{"name":"batches/1"}`))
	if err != nil || uri != "GET /v1beta/batches/1" || key != testKey || string(state) != `{"name":"batches/1","done":true,"response":{}}` {
		t.Errorf("%s, key %q: %s, %v", uri, key, state, err)
	}
}

// troubles lists answers of a server in trouble, by the name of a batch.
func troubles(w http.ResponseWriter, r *http.Request) {
	canary := r.Header.Get("x-goog-api-key") + r.Header.Get("Authorization")
	switch strings.TrimPrefix(r.URL.Path, "/v1beta/batches/") {
	case "500":
		w.WriteHeader(500)
	case "503-wait":
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(503)
	case "429-wait":
		w.WriteHeader(429)
		io.WriteString(w, `{"error":{"code":429,"details":[{"@type":"x"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7200s"}]}}`)
	case "400", "401", "403":
		w.WriteHeader(map[byte]int{'0': 400, '1': 401, '3': 403}[r.URL.Path[len(r.URL.Path)-1]])
	case "418":
		w.WriteHeader(418)
	case "html":
		io.WriteString(w, "<html>"+canary+"</html>")
	case "list":
		io.WriteString(w, `[{"name":"batches/list","done":true}]`)
	case "cut":
		io.WriteString(w, `{"name":"batches/cut","done":true`)
	case "huge":
		io.WriteString(w, `{"name":"batches/huge","done":true,"response":{"x":"`+strings.Repeat(canary, 1<<20/len(canary)+1)+`"}}`)
	case "padded":
		io.WriteString(w, `{"name":"batches/padded","done":true,"response":{}}`+strings.Repeat(" ", 1<<20))
	case "other":
		io.WriteString(w, `{"name":"batches/`+canary+`","done":true,"response":{}}`)
	case "unnamed":
		io.WriteString(w, `{"done":true,"response":{}}`)
	case "redirect":
		http.Redirect(w, r, "/v1beta/batches/good?key="+canary, http.StatusFound)
	case "redirect-away":
		http.Redirect(w, r, "https://evil.test/?key="+canary, http.StatusTemporaryRedirect)
	case "almost":
		io.WriteString(w, `{"name":"batches/almost","done":"true","response":{}}`)
	case "short":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"name":"`+canary)
	case "good":
		io.WriteString(w, `{"name":"batches/good","done":true,"response":{}}`)
	case "slow":
		<-r.Context().Done()
	}
}

func TestAServerInTroubleIsAFailedAttemptAndTellsNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(troubles))
	defer server.Close()
	g := mustGemini(t, GeminiOptions{BaseURL: server.URL})
	for name, want := range map[string]string{
		"500": "failed", "503-wait": "later", "429-wait": "later", "400": "failed", "401": "failed", "403": "failed", "418": "failed",
		"html": "failed", "list": "failed", "cut": "failed", "huge": "failed", "padded": "failed", "other": "failed", "unnamed": "failed", "short": "failed",
		"redirect": "failed", "redirect-away": "failed", "almost": "not yet", "good": "confirmed",
	} {
		state, err := g.confirm(t.Context(), event("batch.succeeded", `{"name":"batches/`+name+`"}`))
		if got := verdict(err); got != want || (err != nil && state != nil) {
			t.Errorf("%s: %s, want %s (%v)", name, got, want, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, testKey) || strings.Contains(text, "v1beta") || strings.Contains(text, "evil") {
				t.Errorf("%s: the error tells %s", name, text)
			}
		}
		if want != "later" {
			continue
		}
		if after := time.Duration(reflect.ValueOf(errors.Unwrap(err)).Elem().FieldByName("after").Int()); after < 2*time.Hour || after > 132*time.Minute {
			t.Errorf("%s: again after %s: %v", name, after, err)
		}
	}
}

func TestABatchWithoutAStateIsJudgedByItsResult(t *testing.T) {
	r, ok := parseResource("batches/1")
	if !ok {
		t.Fatal("batches/1 is no name")
	}
	for _, c := range []struct{ eventType, rest, want string }{
		{"batch.cancelled", `,"error":{"code":1}`, "confirmed"},
		{"batch.failed", `,"error":{"code":1}`, "refuted"},
		{"batch.failed", `,"error":{"code":13}`, "confirmed"},
		{"batch.succeeded", `,"error":{}`, "refuted"},
		{"batch.succeeded", `,"response":{}`, "confirmed"},
		{"batch.failed", `,"response":{}`, "refuted"},
		{"batch.failed", ``, "confirmed"}, // the answer does not tell
		{"batch.succeeded", `,"metadata":{"state":"JOB_STATE_SUCCEEDED"},"error":{"code":13}`, "confirmed"},
		{"batch.succeeded", `,"metadata":{"state":"BATCH_STATE_RUNNING"},"response":{}`, "confirmed"},
	} {
		err := r.judge(c.eventType, []byte(`{"name":"batches/1","done":true`+c.rest+`}`))
		if got := verdict(err); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.eventType, c.rest, got, c.want)
		}
	}
}

func TestALargerAnswerCanBeAllowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(troubles))
	defer server.Close()
	g := mustGemini(t, GeminiOptions{BaseURL: server.URL, MaxBytes: 2 << 20})
	if _, err := g.confirm(t.Context(), event("", `{"name":"batches/padded"}`)); err != nil {
		t.Error(err)
	}
	g = mustGemini(t, GeminiOptions{BaseURL: server.URL})
	if _, err := g.confirm(t.Context(), event("", `{"name":"batches/padded"}`)); err == nil || !strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("error %v", err)
	}
}

func TestASlowServerEndsWithTheAttempt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(troubles))
	defer server.Close()
	g := mustGemini(t, GeminiOptions{BaseURL: server.URL})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := g.confirm(ctx, event("", `{"name":"batches/slow"}`))
		answered <- err
	}()
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, o := range map[string]GeminiOptions{
		"no key":           {},
		"blank key":        {APIKey: "          "},
		"key with space":   {APIKey: "AIza test key 0123"},
		"key with newline": {APIKey: testKey + "\n"},
		"short key":        {APIKey: "short"},
		"plain http":       {APIKey: testKey, BaseURL: "http://api.example.com"},
		"no scheme":        {APIKey: testKey, BaseURL: "api.example.com"},
		"userinfo":         {APIKey: testKey, BaseURL: "https://user:pass@api.example.com"},
		"query":            {APIKey: testKey, BaseURL: "https://api.example.com?key=x"},
		"negative limit":   {APIKey: testKey, MaxBytes: -1},
		"negative wait":    {APIKey: testKey, NotFoundFor: -1},
	} {
		_, err := Gemini(o)
		if err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "AIza") || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
	for _, base := range []string{"", "https://api.example.com", "https://gateway.example.com/gemini", "http://localhost:1", "http://[::1]:1"} {
		if _, err := Gemini(GeminiOptions{APIKey: testKey, BaseURL: base}); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
}
