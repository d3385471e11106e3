package confirm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"ichido.dev/ichido/internal/outbound"
)

const paid = `body.status == "paid" && body.amount == event.payload.data.amount`

func mustHTTP(t *testing.T, o HTTPOptions) *byHTTP {
	t.Helper()
	h, err := newHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

func TestExpressionsDecideOverTheAnswer(t *testing.T) {
	status, answer := 200, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer server.Close()
	payload := `{"data":{"id":"pay_1","amount":9007199254740993}}`
	for _, c := range []struct {
		status              int
		answer              string
		done, refuted, want string
	}{
		{200, `{"status":"paid","amount":9007199254740993}`, paid, "", "confirmed"},
		{200, `{"status":"paid","amount":9007199254740992}`, paid, "", "not yet"}, // not rounded
		{200, `{"status":"open"}`, paid, `body.status == "void"`, "not yet"},
		{200, `{"status":"void"}`, paid, `body.status == "void"`, "refuted"},
		{200, `{"n":92233720368547758070}`, `body.n == "92233720368547758070"`, "", "confirmed"},
		{200, `{"n":0.5}`, `body.n < 1`, "", "confirmed"},
		{200, `{"n":1e2}`, `body.n == 100`, "", "confirmed"},
		{200, `{}`, `body.done`, "", "not yet"}, // false is often left out
		{200, `{"done":true}`, `body.done`, "", "confirmed"},
		{200, `{"done":"yes"}`, `body.done`, "", "failed"},
		{200, `{"items":[{"id":"pay_1"}]}`, `any(body.items, .id == event.payload.data.id)`, "", "confirmed"},
		{200, `{"a":1}`, `true`, `true`, "failed"}, // both
		{200, `[]`, `body.status == "paid"`, "", "failed"},
		{200, `{}`, `body.status.code == 1`, "", "failed"},
		{200, `<html>paid</html>`, `status == 200`, "", "failed"},
		{200, `{} {}`, `status == 200`, "", "failed"},
		{204, ``, `status == 204`, "", "confirmed"},
		{404, ``, `status == 200`, "", "not yet"},
		{404, `<html>`, `status == 200`, `status == 404`, "refuted"},
		{410, `gone`, `status == 200`, `status in [404, 410]`, "refuted"},
		{401, `{}`, `body.status == "paid"`, "", "failed"},
		{403, `nope`, `status == 200`, "", "failed"},
		{302, ``, `status == 302`, "", "failed"},
		{429, `{"status":"paid"}`, `true`, "", "failed"},
		{500, `{"status":"paid"}`, `true`, "", "failed"},
		{200, `{}`, `event.id == "ev_1" && event.key == "k" && event.type == "payment.paid" && event.source == "gemini"`, "", "confirmed"},
	} {
		status, answer = c.status, c.answer
		h := mustHTTP(t, HTTPOptions{URL: server.URL, Done: c.done, Refuted: c.refuted})
		state, err := h.confirm(t.Context(), event("payment.paid", payload))
		if got := verdict(err); got != c.want {
			t.Errorf("%d %s, done %s, refuted %s: %s, want %s (%v)", c.status, c.answer, c.done, c.refuted, got, c.want, err)
		}
		want := c.answer
		if want == "" || want[0] == '<' || want[0] == 'g' {
			want = "null"
		}
		told := c.want == "confirmed" || c.want == "refuted"
		if told && string(state) != want || !told && state != nil {
			t.Errorf("%d %s: state %q", c.status, c.answer, state)
		}
		if err != nil && (strings.Contains(err.Error(), "html") || strings.Contains(err.Error(), "nope") || strings.ContainsAny(err.Error(), "\n")) {
			t.Errorf("the error tells what the answer was: %v", err)
		}
	}
}

func TestFactsBecomeOneSegmentOrOneQueryValue(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.RequestURI
		io.WriteString(w, "{}")
	}))
	defer server.Close()
	for _, c := range []struct{ template, payload, want string }{
		{"/v1/payments/{payload.data.id}", `{"data":{"id":"pay_1"}}`, "/v1/payments/pay_1"},
		{"/v1/{payload.n}", `{"n":9007199254740993}`, "/v1/9007199254740993"},
		{"/v1/{payload.n}", `{"n":-5}`, "/v1/-5"},
		{"/v1/{payload.n}", `{"n":123456789012345678901234567890}`, "/v1/123456789012345678901234567890"},
		{"/v1/p-{payload.a}.json?x={payload.b}&y=1", `{"a":"1","b":"2&z=3"}`, "/v1/p-1.json?x=2%26z%3D3&y=1"},
		{"/{payload.a}", `{"a":"a?b#c"}`, "/a%3Fb%23c"},
		{"/{payload.a}", `{"a":"a b%2fé"}`, "/a%20b%252f%C3%A9"},
		{"/{payload.a}", `{"a":"a{b}"}`, "/a%7Bb%7D"},
		{"?q={payload.a}", `{"a":"x+y z"}`, "/?q=x%2By+z"},
		{"/{event.id}/{event.key}/{event.type}/{event.source}", `{}`, "/ev_1/k/payment.paid/gemini"},
	} {
		h := mustHTTP(t, HTTPOptions{URL: server.URL + c.template, Done: "true"})
		if _, err := h.confirm(t.Context(), event("payment.paid", c.payload)); err != nil || got != c.want {
			t.Errorf("%s with %s: %s, want %s (%v)", c.template, c.payload, got, c.want, err)
		}
	}
}

func TestAFactThatIsMissingOrUnsafeIsADeadLetterAndNotAsked(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	h := mustHTTP(t, HTTPOptions{URL: server.URL + "/v1/{payload.data.id}", Done: "true"})
	for _, value := range []string{
		`null`, `""`, `true`, `1.5`, `1e9`, `[]`, `{}`, `["a"]`, `"."`, `".."`, `"a/b"`, `"../x"`, `"a\\b"`, `"a\nb"`, `"a\u0000b"`, `"a\u007fb"`,
		`"\ud800"`, `"` + strings.Repeat("x", 257) + `"`,
	} {
		_, err := h.confirm(t.Context(), event("", `{"data":{"id":`+value+`}}`))
		if verdict(err) != "dead" || !strings.Contains(err.Error(), "{payload.data.id}") {
			t.Errorf("%s: %v", value, err)
		}
	}
	for _, payload := range []string{``, `[]`, `{}`, `{"data":null}`, `{"data":[]}`, `{"data":{"ID":"x"}}`, `{`} {
		if _, err := h.confirm(t.Context(), event("", payload)); verdict(err) != "dead" {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if asked != 0 {
		t.Errorf("asked %d times", asked)
	}
}

func FuzzFactsStayInTheirSegment(f *testing.F) {
	for _, seed := range []string{"pay_1", "..", "a/b", "?x", "#", "%2f", "@evil.test", "é", "\x00", ":80"} {
		f.Add(seed)
	}
	t1, err := parseTemplate("https://api.test/v1/{event.key}/x?k={event.key}&z=1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		text, err := t1.expand(&facts{key: key})
		if err != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		query := u.Query()
		if u.Host != "api.test" || u.Fragment != "" || len(segments) != 4 || u.Path != "/v1/"+key+"/x" ||
			len(query) != 2 || query.Get("k") != key || query.Get("z") != "1" {
			t.Errorf("%q became %s", key, text)
		}
	})
}

func TestHeadersAreSentAndNeverTold(t *testing.T) {
	const canary = "canary-bearer-0123456789"
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		troubles(w, r)
	}))
	defer server.Close()
	h := mustHTTP(t, HTTPOptions{
		URL: server.URL + "/v1beta/batches/{payload.id}?token=" + canary, Done: "body.done == true && body.name == 'x'",
		Headers: map[string]string{"authorization": "Bearer " + canary, "X-Version": "2026-01-01"},
	})
	for name, want := range map[string]string{
		"500": "failed", "503-wait": "later", "html": "failed", "huge": "failed", "other": "not yet", "redirect": "failed",
		"redirect-away": "failed", "short": "failed", "cut": "failed", "401": "failed", "list": "failed",
	} {
		_, err := h.confirm(t.Context(), event("", `{"id":"`+name+`"}`))
		if verdict(err) != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, canary) || strings.Contains(text, "v1beta") {
				t.Errorf("%s: the error tells %s", name, text)
			}
		}
	}
	if got.Get("Authorization") != "Bearer "+canary || got.Get("X-Version") != "2026-01-01" {
		t.Errorf("headers %v", got)
	}
}

func TestAnExpressionErrorPointsAtItsPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"body.status = 'paid'", "\n | body.status = 'paid'\n | ............^"},
		{"status == 'paid'", "\n | status == 'paid'\n | .......^"},
		{"stats == 200", "\n | stats == 200\n | ^"},
		{"event.nope", "\n | event.nope\n | ......^"},
		{"status", "expected bool"},
		{"all(body.a, any(body.b, # == 1))", "a loop inside a loop is not allowed (1:25)\n | all(body.a, any(body.b, # == 1))\n | ........................^"},
		{"map(filter(body.a, .x), all(#, true))[0]", "a loop inside a loop"},
		{"", "an expression is missing"},
		{strings.Repeat("status == 1 || ", 300) + "true", "exceeds maximum allowed nodes"},
	} {
		_, err := HTTP(HTTPOptions{URL: "https://api.example.com/", Done: c.text})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v\nlacks\n%s", c.text, err, c.want)
		}
	}
}

func TestAnExpressionCannotEatTheMachine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"n":1000000000}`) }))
	defer server.Close()
	for _, text := range []string{`len(1..body.n) > 0`, `len(repeat("x", body.n)) > 0`, `len(map(1..1000000, #)) > 0`} {
		h := mustHTTP(t, HTTPOptions{URL: server.URL, Done: text})
		_, err := h.confirm(t.Context(), event("", "{}"))
		if verdict(err) != "failed" || !strings.Contains(err.Error(), "done: it cannot be evaluated over this answer, at 1:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestEveryProblemOfTheOptionsIsReported(t *testing.T) {
	_, err := HTTP(HTTPOptions{
		URL: "https://{payload.host}/", Done: "", Refuted: "nope",
		Headers: map[string]string{"X-Key": "canary\r\nEvil: 1", "Bad Name": "x", "Host": "evil.test", "X-Empty": ""},
	})
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"URL: the host must be fixed", "done: an expression is missing", "refuted: unknown name nope", `"X-Key"`, `"Bad Name"`, `"Host"`, `"X-Empty"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	for _, bad := range []string{
		"", "api.example.com/x", "ftp://api.example.com", "https://", "https:///x", "https://{event.id}.example.com/", "https://u:p@api.example.com/",
		"https://api.example.com:{event.id}/", "https://api.example.com/{payload}", "https://api.example.com/{event.body}", "https://api.example.com/{payload.a",
		"https://api.example.com/a}", "https://api.example.com/{}", "https://api.example.com/{payload..a}", "https://api.example.com/{payload.a.}",
		"https://api.example.com/{{payload.a}}", "https://api.example.com/#{payload.a}", "https://api.example.com/%zz", "https://api.exa mple.com/",
		"https://api.example.com/{ payload.a }",
	} {
		if _, err := HTTP(HTTPOptions{URL: bad, Done: "true"}); err == nil {
			t.Errorf("URL %q was accepted", bad)
		}
	}
	if _, err := HTTP(HTTPOptions{URL: "https://api.example.com", Done: "true", MaxBytes: -1}); err == nil {
		t.Error("a negative limit was accepted")
	}
}

func TestPrivateHostsAreAskedOnlyWhenAllowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	defer server.Close()
	private := strings.Replace(server.URL, "127.0.0.1", "internal.test", 1)
	h := mustHTTP(t, HTTPOptions{URL: server.URL, Done: "true"})
	if _, err := h.confirm(t.Context(), event("", "{}")); err != nil {
		t.Errorf("an address that the operator wrote: %v", err)
	}
	for name, c := range map[string]struct {
		allow []string
		want  string
	}{"not allowed": {nil, "failed"}, "allowed": {[]string{"127.0.0.1"}, "confirmed"}} {
		client, err := outbound.NewClient(outbound.Options{Allow: c.allow})
		if err != nil {
			t.Fatal(err)
		}
		// Every name is this server: look-ups stay inside the test.
		guarded := client.Transport.(*http.Transport).DialContext
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return guarded(ctx, network, server.Listener.Addr().String())
		}
		h := mustHTTP(t, HTTPOptions{URL: private, Done: "true", Client: client})
		if _, err := h.confirm(t.Context(), event("", "{}")); verdict(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := HTTP(HTTPOptions{URL: "https://api.example.com", Done: "true", Allow: []string{"0.0.0.0/0"}}); err == nil {
		t.Error("Allow is not read")
	}
	if _, err := Gemini(GeminiOptions{APIKey: testKey, Allow: []string{"0.0.0.0/0"}}); err == nil {
		t.Error("Allow is not read")
	}
}
