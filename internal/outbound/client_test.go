package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// homeDialer connects to home itself, and hands everything else on.
func homeDialer(home string, next dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == home {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return next(ctx, network, address)
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// toLoopback returns a client that may reach servers of the test.
func toLoopback(t *testing.T) *http.Client {
	t.Helper()
	c, err := NewClient(Options{Allow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestLoopbackIsReachedOnlyWhenAllowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }))
	defer server.Close()
	closed, err := NewClient(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Exchange(closed, mustRequest(t, server.URL), 10); !errors.Is(err, ErrForbidden) {
		t.Errorf("without an allow list: %v", err)
	}
	answer, err := Exchange(toLoopback(t), mustRequest(t, server.URL), 10)
	if err != nil || string(answer.Body) != "here" {
		t.Errorf("allowed: %+v, %v", answer, err)
	}
}

func TestProxyVariablesOfTheEnvironmentAreIgnored(t *testing.T) {
	c, err := NewClient(Options{})
	if err != nil {
		t.Fatal(err)
	}
	// net/http reads the variables once in a process, so that setting them
	// here would show nothing.
	if c.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy is chosen although none is configured")
	}
}

func TestAConfiguredProxyIsUsed(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "proxied %s", r.URL)
	}))
	defer proxy.Close()
	c, err := NewClient(Options{Proxy: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := Exchange(c, mustRequest(t, "http://elsewhere.test/path"), 100)
	if err != nil || string(answer.Body) != "proxied http://elsewhere.test/path" {
		t.Errorf("got %+v, %v", answer, err)
	}
	for _, bad := range []string{"proxy:3128", "ftp://proxy", "http://", "://"} {
		if _, err := NewClient(Options{Proxy: bad}); err == nil {
			t.Errorf("proxy %q was accepted", bad)
		}
	}
}

func TestARedirectIsTheAnswer(t *testing.T) {
	followed := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		followed = followed || r.URL.Path == "/elsewhere"
		http.Redirect(w, r, "/elsewhere?token=canary", http.StatusFound)
	}))
	defer server.Close()
	for name, c := range map[string]*http.Client{"ours": toLoopback(t), "default": {}} {
		answer, err := Exchange(c, mustRequest(t, server.URL), 100)
		if err != nil || answer.Status != http.StatusFound || followed {
			t.Errorf("%s: %+v, %v, followed %v", name, answer, err, followed)
		}
	}
}

func TestAnAnswerIsReadUpToTheLimit(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/declared" {
			w.Header().Set("Content-Length", "1073741824")
		}
		chunk := []byte(strings.Repeat("x", 4096))
		for { // until the client hangs up
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	for path, dropped := range map[string]int64{"/endless": -1, "/declared": 1<<30 - 5000} {
		answer, err := Exchange(toLoopback(t), mustRequest(t, server.URL+path), 5000)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Body) != 5000 || answer.Dropped != dropped {
			t.Errorf("%s: read %d, dropped %d, want 5000 and %d", path, len(answer.Body), answer.Dropped, dropped)
		}
	}
}

func TestAnAnswerOfExactlyTheLimitIsWhole(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "12345") }))
	defer server.Close()
	answer, err := Exchange(toLoopback(t), mustRequest(t, server.URL), 5)
	if err != nil || string(answer.Body) != "12345" || answer.Dropped != 0 {
		t.Errorf("got %+v, %v", answer, err)
	}
}

// pipeClient returns a client whose connections end in serve, without
// sockets, so that a synctest bubble can move its clock; and a function that
// closes it and waits for serve.
func pipeClient(t *testing.T, o Options, serve func(net.Conn)) (c *http.Client, end func()) {
	t.Helper()
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	var servers sync.WaitGroup
	c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		servers.Go(func() { serve(server) })
		return client, nil
	}
	return c, func() { c.CloseIdleConnections(); servers.Wait() }
}

func TestSlowAnswersEndAtTheTimeout(t *testing.T) {
	readRequest := func(c net.Conn) {
		buf := make([]byte, 4096)
		c.Read(buf)
	}
	for _, test := range []struct {
		name   string
		serve  func(net.Conn)
		want   time.Duration
		status int
	}{
		{"no header", func(c net.Conn) { readRequest(c); io.Copy(io.Discard, c) }, 15 * time.Second, 0},
		{"one byte a second", func(c net.Conn) {
			defer c.Close()
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for range 1000 {
				time.Sleep(time.Second)
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}, 30 * time.Second, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, end := pipeClient(t, Options{}, test.serve)
				defer end()
				start := time.Now()
				answer, err := Exchange(c, mustRequest(t, "http://slow.test/"), 5000)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != test.want {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if test.status != 0 && (answer == nil || answer.Status != test.status) {
					t.Errorf("answer %+v, want status %d", answer, test.status)
				}
			})
		})
	}
}

func TestErrorsHoldNothingOfTheRequestButItsHost(t *testing.T) {
	canary := "canary-in-the-coal-mine"
	hangup := func(answer string) string { return rawServer(t, answer) }
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	zone := &names{zone: map[string][]string{}}
	client, err := NewClient(Options{Allow: []string{"127.0.0.1"}, Resolver: zone.resolver()})
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		host  string // scheme://host
		ctx   context.Context
		cause string
	}{
		"refused":          {"http://" + closedPort(t), nil, "connection refused"},
		"forbidden":        {"http://10.0.0.1", nil, ErrForbidden.Error()},
		"hang-up":          {"http://" + hangup(""), nil, "the connection ended early"},
		"nonsense":         {"http://" + hangup(canary+"\r\n\r\n"), nil, "no valid answer"},
		"malformed header": {"http://" + hangup("HTTP/1.1 200 OK\r\n"+canary+"\r\n\r\n"), nil, "no valid answer"},
		"not TLS":          {strings.Replace(plain.URL, "http:", "https:", 1), nil, "no valid answer"},
		"bad certificate":  {secure.URL, nil, "the certificate is by an unknown authority"},
		"canceled":         {plain.URL, canceled, "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			full := strings.Replace(test.host, "://", "://user:"+canary+"@", 1) + "/" + canary + "?key=" + canary
			req := mustRequest(t, full)
			req.Header.Set("X-Key", canary)
			if test.ctx != nil {
				req = req.WithContext(test.ctx)
			}
			_, err := Exchange(client, req, 100)
			if err == nil {
				t.Fatal("no error")
			}
			// What net/http itself says holds the canary: the test can see it.
			if _, raw := client.Do(req); raw == nil || !strings.Contains(raw.Error(), canary) {
				t.Errorf("the error of net/http does not hold the canary: %v", raw)
			}
			if want := test.host + ": " + test.cause; err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, canary) {
					t.Errorf("the error holds the canary: %s", text)
				}
			}
		})
	}
}

// rawServer answers every connection with the text, and ends it.
func rawServer(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			io.WriteString(c, answer)
			c.Close()
		}
	}()
	return listener.Addr().String()
}

// closedPort returns an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestHTTP2IsSpoken(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := toLoopback(t)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	answer, err := Exchange(c, mustRequest(t, server.URL), 100)
	if err != nil || string(answer.Body) != "HTTP/2.0" {
		t.Errorf("got %+v, %v", answer, err)
	}
}
