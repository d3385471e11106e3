package outbound

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"ichido.dev/ichido"
)

func message() Message {
	return Message{
		ID: "ev_0123456789abcdefghjkmnpqrs", Source: "github", Type: "push", Strength: ichido.Verified, Attempt: 3,
		Header: http.Header{
			"Content-Type":        {"application/json"},
			"User-Agent":          {"GitHub-Hookshot/1"},
			"X-Github-Event":      {"push", "second"},
			"X-Github-Delivery":   {"72d3162e"},
			"X-Hub-Signature-256": {"sha256=00"},
			"Cookie":              {"session=1"},
			"Authorization":       {"Bearer x"},
			"X-Forwarded-For":     {"1.2.3.4"},
			"Proxy-Connection":    {"close"},
			"Connection":          {"close"},
		},
		Body: []byte("{\"a\":1}\x00\xff"),
	}
}

func mustDestination(t *testing.T, o DestinationOptions) *Destination {
	t.Helper()
	d, err := NewDestination(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wire returns the request as it is on the wire, with its header lines sorted.
func wire(t *testing.T, o DestinationOptions, m Message) (lines []string, body string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // so that the clock stands still
		client, end := pipeClient(t, Options{}, func(c net.Conn) {
			defer c.Close()
			r := bufio.NewReader(c)
			size := 0
			for {
				line, err := r.ReadString('\n')
				if err != nil || line == "\r\n" {
					break
				}
				lines = append(lines, strings.TrimSuffix(line, "\r\n"))
				if n, ok := strings.CutPrefix(strings.TrimSpace(line), "Content-Length: "); ok {
					size, _ = strconv.Atoi(n)
				}
			}
			b := make([]byte, size)
			io.ReadFull(r, b)
			body = string(b)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		})
		o.Client = client
		result, err := mustDestination(t, o).Deliver(t.Context(), m)
		if err != nil || result.Status != 204 {
			t.Errorf("deliver: %+v, %v", result, err)
		}
		end()
	})
	sort.Strings(lines[1:])
	return lines, body
}

func TestDeliveryOnTheWire(t *testing.T) {
	m := message()
	const now = 946684800 // where synctest's clock starts
	got, body := wire(t, DestinationOptions{
		URL: "http://app.test/hooks?k=v", Headers: []string{"X-GitHub-Event"}, Signer: mustSigner(t, secretA, secretB),
	}, m)
	signed := fmt.Sprintf("%s.%d.%s", m.ID, now, m.Body)
	want := []string{
		"POST /hooks?k=v HTTP/1.1",
		"Content-Length: 9",
		"Content-Type: application/json",
		"Host: app.test",
		"Ichido-Attempt: 3",
		"Ichido-Source: github",
		"Ichido-Strength: verified",
		"Ichido-Type-Signed: false",
		"Ichido-Type: push",
		"User-Agent: ichido",
		"Webhook-Id: " + m.ID,
		"Webhook-Signature: " + independent(secretA, signed) + " " + independent(secretB, signed),
		"Webhook-Timestamp: 946684800",
		"X-Github-Event: push",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header lines (-want +got):\n%s", diff)
	}
	if body != string(m.Body) {
		t.Errorf("body %q, want %q", body, m.Body)
	}
}

func TestHeadersOfTheSenderCannotInjectAnything(t *testing.T) {
	for _, evil := range []string{"x\r\nEvil: 1", "x\nEvil: 1", "x\rEvil: 1", "x\x00y", "x\x0by", "naïve", "\xff\xfe", "x\x7f"} {
		m := message()
		m.Type, m.Source = evil, evil
		m.Header = http.Header{"Content-Type": {evil}, "X-Github-Event": {evil}, "Content-Encoding": {evil}}
		lines, _ := wire(t, DestinationOptions{URL: "http://app.test/", Headers: []string{"X-GitHub-Event"}}, m)
		for _, line := range lines {
			if !isPrintable(line) || strings.HasPrefix(line, "Evil") || strings.HasPrefix(line, "Content-Type") ||
				strings.HasPrefix(line, "Content-Encoding") || strings.HasPrefix(line, "X-Github") {
				t.Errorf("%q: line %q", evil, line)
			}
		}
		if !strings.Contains(strings.Join(lines, "\n"), "Ichido-Type: x%") && evil[0] == 'x' {
			t.Errorf("%q: the type is missing in %q", evil, lines)
		}
	}
}

func TestAMessageWithoutBodyTypeAndSigner(t *testing.T) {
	got, _ := wire(t, DestinationOptions{URL: "http://app.test/"}, Message{ID: "ev_1", Source: "s", Strength: "weak", Attempt: 1})
	want := []string{
		"POST / HTTP/1.1", "Content-Length: 0", "Host: app.test", "Ichido-Attempt: 1", "Ichido-Source: s",
		"Ichido-Strength: weak", "User-Agent: ichido", "Webhook-Id: ev_1", "Webhook-Timestamp: 946684800",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header lines (-want +got):\n%s", diff)
	}
}

// outcome is how the worker sees an error, found out without its help.
func outcome(err error) string {
	switch text := fmt.Sprintf("%T", err); {
	case err == nil:
		return "delivered"
	case strings.Contains(text, "permanent"):
		return "stop"
	case strings.Contains(text, "retryAfter"):
		return "later"
	}
	return "retry"
}

func TestEveryStatusHasItsMeaning(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", "https://elsewhere.test/?token=canary")
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			io.WriteString(w, "canary")
		}
	}))
	defer server.Close()
	d := mustDestination(t, DestinationOptions{URL: server.URL + "/canary?canary", Client: toLoopback(t)})
	for status = 200; status <= 599; status++ {
		want := "retry"
		switch {
		case status < 300:
			want = "delivered"
		case status == 410:
			want = "stop"
		}
		result, err := d.Deliver(t.Context(), message())
		if got := outcome(err); got != want || result.Status != status {
			t.Errorf("%d: %s, want %s (%v)", status, got, want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "canary") || !strings.HasPrefix(err.Error(), "destination answered "+strconv.Itoa(status))) {
			t.Errorf("%d: error %q", status, err)
		}
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"120":                            2 * time.Minute,
		"86400":                          24 * time.Hour,
		"86401":                          24 * time.Hour,
		"99999999999999999999999999":     24 * time.Hour,
		"-1":                             0,
		"+5":                             0,
		"1.5":                            0,
		"5 s":                            0,
		"soon":                           0,
		"Fri, 02 Jan 2026 03:05:05 GMT":  time.Minute,
		"Fri, 02 Jan 2026 03:04:05 GMT":  0,
		"Thu, 01 Jan 2026 00:00:00 GMT":  0,
		"Fri, 31 Dec 9999 23:59:59 GMT":  24 * time.Hour,
		"Friday, 02-Jan-26 03:05:05 GMT": time.Minute,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzRetryAfterStaysInItsBounds(f *testing.F) {
	for _, seed := range []string{"120", "-1", "1e9", "Fri, 02 Jan 2026 03:05:05 GMT", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if wait := RetryAfter(http.Header{"Retry-After": {text}}, now); wait < 0 || wait > 24*time.Hour {
			t.Errorf("%q: %v", text, wait)
		}
	})
}

func TestARetryAfterIsTheLeastWait(t *testing.T) {
	cause := errors.New("answered 503")
	if err := After(cause, 0, ichido.DefaultBackoff(), 1); err != cause {
		t.Errorf("no wait: %v", err)
	}
	quick := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}
	for _, wait := range []time.Duration{time.Nanosecond, 2 * time.Second, time.Minute, 24 * time.Hour} {
		waits := map[time.Duration]bool{}
		for attempt := range 200 {
			got := waitOf(t, After(cause, wait, quick, attempt))
			if most := max(wait+wait/10, 200*time.Millisecond); got < wait || got > min(most, 24*time.Hour) {
				t.Fatalf("attempt %d: %s became %s", attempt, wait, got)
			}
			waits[got] = true
		}
		if len(waits) < 150 && wait < 24*time.Hour {
			t.Errorf("200 events that wait %s come back at %d times", wait, len(waits))
		}
	}
	if got := waitOf(t, After(cause, time.Minute, []time.Duration{0}, 1)); got < time.Minute || got > 66*time.Second {
		t.Errorf("without a table one minute became %s", got)
	}
}

// TestAShortRetryAfterDoesNotUseUpTheAttempts: "Retry-After: 1" at the ninth
// attempt, where the table draws up to 8 h.
func TestAShortRetryAfterDoesNotUseUpTheAttempts(t *testing.T) {
	long := 0
	for range 200 {
		wait := waitOf(t, After(errors.New("answered 503"), time.Second, ichido.DefaultBackoff(), 9))
		if wait < time.Second || wait > 8*time.Hour {
			t.Fatalf("wait %v", wait)
		}
		if wait > time.Minute {
			long++
		}
	}
	if long < 150 {
		t.Errorf("%d of 200 waits over a minute", long)
	}
}

// waitOf returns the wait of a RetryAfter error, which only the worker can see.
func waitOf(t *testing.T, err error) time.Duration {
	t.Helper()
	after := reflect.ValueOf(err).Elem().FieldByName("after")
	if !after.IsValid() {
		t.Fatalf("no wait in %T: %v", err, err)
	}
	return time.Duration(after.Int())
}

// TestADestinationIsAskedToWaitByItsAnswer, and by the table of its source.
func TestADestinationIsAskedToWaitByItsAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Retry-After", strings.TrimPrefix(req.URL.Path, "/"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	for _, test := range []struct {
		path         string
		backoff      []time.Duration
		attempt      int
		atMost, some time.Duration // some: one in fifty is longer
	}{
		{"3600", nil, 1, 66 * time.Minute, time.Hour},
		{"2", []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, 9, 2200 * time.Millisecond, 2 * time.Second},
		{"2", []time.Duration{time.Second, time.Hour}, 2, time.Hour, time.Minute},
		{"2", nil, 9, 8 * time.Hour, time.Hour},
	} {
		d := mustDestination(t, DestinationOptions{URL: server.URL + "/" + test.path, Client: toLoopback(t), Backoff: test.backoff})
		m := message()
		m.Attempt = test.attempt
		least, _ := strconv.Atoi(test.path)
		longest := time.Duration(0)
		for range 50 {
			_, err := d.Deliver(t.Context(), m)
			wait := waitOf(t, err)
			if longest = max(longest, wait); wait < time.Duration(least)*time.Second || wait > test.atMost {
				t.Errorf("%s, %v, attempt %d: wait %v", test.path, test.backoff, test.attempt, wait)
			}
		}
		if longest <= test.some {
			t.Errorf("%s, %v, attempt %d: the longest wait is %v", test.path, test.backoff, test.attempt, longest)
		}
	}
}

func TestAnAnswerIsKeptAsHarmlessText(t *testing.T) {
	answer := "ok\r\n\x1b[31m\x00\u202eevil\xff日本 " + strings.Repeat("y", 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, answer)
	}))
	defer server.Close()
	result, err := mustDestination(t, DestinationOptions{URL: server.URL, Client: toLoopback(t)}).Deliver(t.Context(), message())
	if err == nil || strings.Contains(err.Error(), "ok") {
		t.Errorf("error %v", err)
	}
	if want := "ok  ?[31m??evil?日本 yyy"; !strings.HasPrefix(result.Excerpt, want) {
		t.Errorf("excerpt %q, want %q", result.Excerpt[:min(40, len(result.Excerpt))], want)
	}
	if len(result.Excerpt) > 2048 || result.Dropped == 0 {
		t.Errorf("excerpt of %d bytes, dropped %d", len(result.Excerpt), result.Dropped)
	}
}

func TestAnAcceptedEventWhoseAnswerBreaksOffIsDelivered(t *testing.T) {
	address := rawServer(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	result, err := mustDestination(t, DestinationOptions{URL: "http://" + address, Client: toLoopback(t)}).Deliver(t.Context(), message())
	if err != nil || result.Status != 200 || result.Excerpt != "half" {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestADestinationThatIsDownIsTriedAgain(t *testing.T) {
	d := mustDestination(t, DestinationOptions{URL: "http://user:canary@" + closedPort(t) + "/canary", Client: toLoopback(t)})
	_, err := d.Deliver(t.Context(), message())
	if outcome(err) != "retry" || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
}

func TestABadDestinationIsRefusedWithEveryProblem(t *testing.T) {
	_, err := NewDestination(DestinationOptions{
		URL: "ftp://user:canary@host/canary", Headers: []string{"Cookie", "X-GitHub-Event", "bad name"}, UserAgent: "a\r\nb",
	})
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"URL", "client", `"Cookie"`, `"bad name"`, "user agent"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in the error: %v", want, err)
		}
	}
	for _, bad := range []string{"", "host/path", "https://", "https:///path", "https://host/#frag", "https://ho st/", "javascript:alert(1)", "http://[::1", "://"} {
		if _, err := NewDestination(DestinationOptions{URL: bad, Client: &http.Client{}}); err == nil {
			t.Errorf("URL %q was accepted", bad)
		}
	}
}

func TestAnIDThatMakesTheSignedTextAmbiguousIsNotSent(t *testing.T) {
	d := mustDestination(t, DestinationOptions{URL: "http://127.0.0.1:1", Client: &http.Client{}})
	for _, id := range []string{"", "a.b", "a b", "a\nb", "é"} {
		m := message()
		m.ID = id
		if _, err := d.Deliver(t.Context(), m); outcome(err) != "stop" {
			t.Errorf("id %q: %v", id, err)
		}
	}
}
