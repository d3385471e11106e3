package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of both servers. A body's own deadline is moved by the inbox as its
// bytes arrive; writeTimeout only ends what nothing else did.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 60 * time.Second
	writeTimeout  = 10 * time.Minute
	headerBytes   = 32<<10 - 4096 // net/http adds 4096 of its own
	drainTimeout  = 10 * time.Second
	bodyTimeout   = 5 * time.Second // for a body that nobody reads
)

// boundedListener closes connections above a limit at once, so that those
// below it are served.
type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func listen(address string, connections int) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &boundedListener{l, make(chan struct{}, connections)}, nil
}

// Accept returns the next connection for which there is a slot.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &boundedConn{Conn: c, release: func() { <-l.slots }}, nil
		default:
			c.Close()
		}
	}
}

// boundedConn gives its slot back when it is closed.
type boundedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// CloseWrite lets net/http end a refused request in a way that the sender
// still reads the answer.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    headerBytes,

		DisableGeneralOptionsHandler: true, // it answers 200 to "OPTIONS *"
	}
}

// timed bounds how long a connection is read from for the sake of a body that
// next does not read. Before it can be answered, net/http reads up to 256 KiB
// of it, and by itself waits for that without an end. A request without a body
// has no deadline, for it would end the context of a handler that takes longer.
// (Of deliveries, the inbox sets all deadlines.)
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// serve serves until ctx ends, then finishes what is in flight.
func serve(ctx context.Context, s *http.Server, l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := s.Shutdown(ending); err != nil {
		s.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
