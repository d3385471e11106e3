package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
	"ichido.dev/ichido/store/memory"
)

// pipes is a listener of connections in memory, whose deadlines follow the
// clock of a synctest bubble.
type pipes struct {
	net.Listener
	conns chan net.Conn
	ended context.Context
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// handlers returns what the two listeners of a gateway with one source serve,
// and that for deliveries also of one that drains.
func handlers(t *testing.T) map[string]http.Handler {
	t.Helper()
	drained := gatewayOf(t)
	drained.admission.Drain()
	g := gatewayOf(t)
	return map[string]http.Handler{"ingest": g, "draining": drained, "admin": g.adminHandler()}
}

func gatewayOf(t *testing.T) *Gateway {
	t.Helper()
	a := &ichido.Admission{}
	src, err := provider.New("github", provider.Config{Secrets: []provider.Secret{{Value: githubSecret}}})
	if err != nil {
		t.Fatal(err)
	}
	src.Name, src.Keep, src.Admission, src.Log = "github", true, a, slog.New(slog.DiscardHandler)
	inbox, err := ichido.NewInbox(memory.New(memory.Options{}), src)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{admission: a}
	g.current.Store(&snapshot{router: newRouter([]*endpoint{{path: "/hooks/github", inbox: inbox}}, a)})
	return g
}

// The deadlines of the inbox: for the first bytes of a body, and for the rest
// of one that is not read to its end.
const (
	bodyGrace = 10 * time.Second
	restGrace = 5 * time.Second
)

// TestConnectionOfASlowBodyIsClosed: whatever a request is answered, its
// connection must not wait for the rest of a body that never comes. It is
// closed by the deadline that is meant for it, and not by a later one.
func TestConnectionOfASlowBodyIsClosed(t *testing.T) {
	for _, test := range []struct {
		name, listener, request string
		want                    int
		answered, closed        time.Duration
	}{
		{"unknown path", "ingest", "POST /nowhere", 404, bodyGrace, bodyGrace + restGrace},
		{"health", "ingest", "GET /livez", 404, bodyGrace, bodyGrace + restGrace},
		{"wrong method", "ingest", "PUT /hooks/github", 405, 0, restGrace},
		{"known path", "ingest", "POST /hooks/github", 408, bodyGrace, bodyGrace + restGrace},
		{"unsupported encoding", "ingest", "POST /hooks/github HTTP/1.1\r\nContent-Encoding: br\r\nX:", 415, 0, restGrace},
		{"draining", "draining", "POST /hooks/github", 503, 0, restGrace},
		{"unknown path, draining", "draining", "POST /nowhere", 404, 0, restGrace},
		{"no admin token", "admin", "GET /v1/events", 401, bodyTimeout, bodyTimeout},
		{"unknown admin path", "admin", "POST /nowhere", 401, bodyTimeout, bodyTimeout},
		{"open admin path", "admin", "GET /livez", 200, bodyTimeout, bodyTimeout},
	} {
		for _, body := range []struct{ name, header, drip string }{
			{"withheld", "Content-Length: 1000", ""},
			{"dribbled", "Content-Length: 1000", "x"},
			{"chunked", "Transfer-Encoding: chunked", "1\r\nx\r\n"},
		} {
			t.Run(test.name+" "+body.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					listener := &pipes{conns: make(chan net.Conn), ended: ctx}
					go newServer(handlers(t)[test.listener]).Serve(listener)
					client, server := net.Pipe()
					var drip sync.WaitGroup
					defer drip.Wait()
					defer client.Close()
					listener.conns <- server
					start := time.Now()
					client.SetDeadline(start.Add(time.Minute))
					request := fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", test.request, body.header)
					if _, err := io.WriteString(client, request); err != nil {
						t.Fatal(err)
					}
					drip.Go(func() {
						for err := error(nil); err == nil && body.drip != ""; time.Sleep(time.Second) {
							_, err = io.WriteString(client, body.drip)
						}
					})
					in := bufio.NewReader(client)
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("no answer: %v", err)
					}
					if res.StatusCode != test.want {
						t.Errorf("answered %d, want %d", res.StatusCode, test.want)
					}
					answered := time.Since(start)
					io.Copy(io.Discard, res.Body)
					if _, err := in.ReadByte(); err != io.EOF {
						t.Errorf("after a minute the connection is open: %v", err)
					}
					closed := test.closed
					if body.name == "chunked" && test.answered == bodyGrace {
						closed = bodyGrace // the reader of a broken chunk reads no more
					}
					if got := time.Since(start); answered != test.answered || got != closed {
						t.Errorf("answered after %s and closed after %s, want %s and %s", answered, got, test.answered, closed)
					}
				})
			})
		}
	}
}
