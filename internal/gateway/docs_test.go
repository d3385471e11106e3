package gateway

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/outbound"
	"ichido.dev/ichido/internal/view"
)

// section returns the part of docs/http.md under a heading, up to the next one
// of its level.
func section(t *testing.T, heading string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut("\n"+string(data), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/http.md has no %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	text, _, _ = strings.Cut(text, "\n"+level+" ")
	return text
}

// firstColumns returns the words in backquotes in the first columns of the
// tables in a text.
func firstColumns(text string) []string {
	var words []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		column, _, _ := strings.Cut(line[2:], " |")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(column, -1) {
			words = append(words, m[1])
		}
	}
	return words
}

// inSource returns what a pattern finds in a file of this package.
func inSource(t *testing.T, file, pattern string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(data), -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return found
}

func same(t *testing.T, what string, code, docs []string) {
	t.Helper()
	if diff := cmp.Diff(code, docs, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("%s of the code and of docs/http.md (-code +docs):\n%s", what, diff)
	}
}

func TestRoutesParametersAndCodesAreDocumented(t *testing.T) {
	admin := section(t, "## Admin")
	var headings []string
	for _, m := range regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(admin, -1) {
		headings = append(headings, m[1])
	}
	same(t, "routes", inSource(t, "admin.go", `mux\.Handle(?:Func)?\("([A-Z]+ [^"]+)"`), headings)

	same(t, "parameters", append(filters(), "before", "limit"), firstColumns(beforeMembers(section(t, "### `GET /v1/events`"))))
	if !strings.Contains(section(t, "### `POST /v1/replay`"), "`dry_run=true`") {
		t.Error("dry_run is not documented")
	}

	for _, code := range inSource(t, "admin.go", `problem\(w, http\.Status\w+, "(\w+)"`) {
		if !strings.Contains(admin, "| `"+code+"` |") {
			t.Errorf("the code %s is not documented", code)
		}
	}
}

// beforeMembers leaves out the table of an event's members.
func beforeMembers(text string) string {
	text, _, _ = strings.Cut(text, "| member")
	return text
}

func TestMembersOfAnswersAreDocumented(t *testing.T) {
	names := func(v any) (names []string) {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
		return names
	}
	_, members, _ := strings.Cut(section(t, "### `GET /v1/events`"), "| member")
	same(t, "members of an event", names(view.Event{}), firstColumns(members))
	same(t, "members of a replay", names(view.Replayed{}), firstColumns(section(t, "### `POST /v1/replay`")))
	stats := section(t, "### `GET /v1/stats`")
	for _, name := range names(view.Stats{}) {
		if !strings.Contains(stats, `"`+name+`"`) && !strings.Contains(stats, "`"+name+"`") {
			t.Errorf("the member %s of the stats is not documented", name)
		}
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	code := inSource(t, "observe.go", `Name: "(\w+)"`)
	for name := range gather(t, newStock(&stocktaker{archive: &counted{}}, &ichido.Admission{})) {
		code = append(code, name)
	}
	same(t, "metrics", code, firstColumns(section(t, "### `GET /metrics`")))
}

// TestForwardIsAsDocumented: its headers, and what each answer means.
func TestForwardIsAsDocumented(t *testing.T) {
	got := make(chan *http.Request, 1)
	status := 200
	destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Header.Set("X-Body", string(body))
		got <- req
		w.WriteHeader(status)
	}))
	defer destination.Close()
	client, err := outbound.NewClient(outbound.Options{Allow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := outbound.NewSigner("whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")))
	if err != nil {
		t.Fatal(err)
	}
	d, err := outbound.NewDestination(outbound.DestinationOptions{URL: destination.URL, Signer: signer, Client: client})
	if err != nil {
		t.Fatal(err)
	}
	message := outbound.Message{
		ID: "ev_1", Source: "stripe", Type: "invoice.paid", Strength: "verified", Attempt: 1,
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity"}, "Cookie": {"a=b"}}, Body: []byte("{}"),
	}
	if _, err := d.Deliver(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	req := <-got
	if req.Method != "POST" || req.Header.Get("X-Body") != "{}" {
		t.Errorf("%s with body %q", req.Method, req.Header.Get("X-Body"))
	}
	var headers []string
	for name := range req.Header {
		if name != "Content-Length" && name != "X-Body" && name != "Accept-Encoding" {
			headers = append(headers, name)
		}
	}
	beforeAnswers, _, _ := strings.Cut(section(t, "## Forwards"), "### Verify it")
	same(t, "headers", headers, firstColumns(beforeAnswers))

	answers := section(t, "### Answer it")
	for status = 200; status < 600; status++ {
		if status == 204 || status == 304 {
			continue // without a body, which is another matter
		}
		_, err := d.Deliver(t.Context(), message)
		<-got
		row := "| any other, or none | a failed attempt |"
		switch {
		case status < 300:
			row = "| `2xx` | done, forwarded |"
		case status < 400:
			row = "| `3xx` | a failed attempt"
		case status == 410:
			row = "| `410` | a dead letter at once |"
		}
		means := "a failed attempt"
		switch {
		case err == nil:
			means = "done, forwarded"
		case isPermanent(err):
			means = "a dead letter at once"
		}
		if !strings.Contains(row, means) || !strings.Contains(answers, row) {
			t.Errorf("%d is %s (%v), which docs/http.md does not say", status, means, err)
		}
	}
}

// isPermanent reports whether an error makes its event a dead letter at once.
func isPermanent(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasSuffix(reflect.TypeOf(err).String(), ".permanent") {
			return true
		}
	}
	return false
}
