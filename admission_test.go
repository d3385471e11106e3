package ichido_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// gatedBody gives its first bytes, says so, and then waits to go on.
type gatedBody struct {
	io.Reader
	first   int
	reached chan<- struct{}
	open    <-chan struct{}
}

func (b *gatedBody) Read(p []byte) (int, error) {
	if b.first > 0 {
		n, err := b.Reader.Read(p[:min(len(p), b.first)])
		b.first -= n
		return n, err
	}
	if b.reached != nil {
		b.reached <- struct{}{}
		b.reached = nil
	}
	<-b.open
	return b.Reader.Read(p)
}

func (b *gatedBody) Close() error { return nil }

// stall sends n bodies of size bytes, and returns when each has given its
// first bytes and waits. finish lets them go on, and returns their answers.
func stall(in http.Handler, n, size, first int) (finish func() map[int]int) {
	reached, open := make(chan struct{}, n), make(chan struct{})
	codes := make(chan int, n)
	var senders sync.WaitGroup
	for range n {
		senders.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/", &gatedBody{bytes.NewReader(make([]byte, size)), first, reached, open})
			r.ContentLength = int64(size)
			codes <- do(in, r).Code
		})
	}
	for range n {
		<-reached
	}
	return func() map[int]int {
		close(open)
		senders.Wait()
		close(codes)
		counts := map[int]int{}
		for code := range codes {
			counts[code]++
		}
		return counts
	}
}

// A large body reserves more than it needs at first, or a flood of halves
// would starve everything else.
func TestFewLargeBodiesAreReadAtOnce(t *testing.T) {
	const size, fit = 300 << 10, 2
	admission := &ichido.Admission{Large: fit * 2 << 20}
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Admission: admission})
	finish := stall(in, fit, size, 100<<10)
	w := do(in, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, size))))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("one large body more was answered %d, want 503", w.Code)
	}
	if counts := finish(); counts[http.StatusUnauthorized] != fit {
		t.Errorf("large bodies that had room were answered %v, want 401", counts)
	}
	if n := admission.InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

// Senders that say they are large and withhold their bodies cost little.
func TestWithheldBodiesKeepNoLargeOneOut(t *testing.T) {
	admission := &ichido.Admission{}
	in := newInbox(t, memory.New(memory.Options{}), ichido.Source{Admission: admission})
	finish := stall(in, 400, 900_000, 4)
	large := fmt.Sprintf(`{"id":"e1","type":"paid","text":"%s"}`, strings.Repeat("x", 500_000))
	if w := do(in, signed(large)); w.Code != http.StatusOK {
		t.Errorf("a genuine large body was answered %d %s", w.Code, w.Body)
	}
	if held := admission.InUse(); held > 8<<20 {
		t.Errorf("%d bytes are reserved for 1,600 that came", held)
	}
	finish()
	if n := admission.InUse(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}
