package ichido_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// gatedBody says when it is read, and then waits to go on.
type gatedBody struct {
	io.Reader
	once    sync.Once
	reading chan<- struct{}
	open    <-chan struct{}
}

func (b *gatedBody) Read(p []byte) (int, error) {
	b.once.Do(func() { b.reading <- struct{}{} })
	<-b.open
	return b.Reader.Read(p)
}

func (b *gatedBody) Close() error { return nil }

// TestFewLargeBodiesAreReadAtOnce: a large body reserves more than its first
// buffer, or a flood of beginnings would starve everything else.
func TestFewLargeBodiesAreReadAtOnce(t *testing.T) {
	const size, fit = 300 << 10, 2
	admission := &ichido.Admission{Large: fit * 2 << 20}
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Admission: admission})
	reading, open := make(chan struct{}, fit), make(chan struct{})
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", &gatedBody{Reader: bytes.NewReader(make([]byte, size)), reading: reading, open: open})
		r.ContentLength = size
		return r
	}
	var senders sync.WaitGroup
	answers := make(chan int, fit)
	for range fit {
		senders.Go(func() {
			w := httptest.NewRecorder()
			in.ServeHTTP(w, request())
			answers <- w.Code
		})
	}
	for range fit {
		<-reading
	}
	w := httptest.NewRecorder()
	in.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, size))))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("one large body more was answered %d, want 503", w.Code)
	}
	close(open)
	senders.Wait()
	for range fit {
		if code := <-answers; code != http.StatusUnauthorized {
			t.Errorf("a large body that had room was answered %d, want 401", code)
		}
	}
	if n := admission.InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}
