package ichido

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Values of Source.Encoding.
const (
	encodingWire    = "wire"
	encodingDecoded = "decoded"
)

// How fast a body must arrive: bodyGrace for its start, and bodyRate on
// average after that. A sender slower than this is answered 408, so that slow
// connections cannot hold memory.
const (
	bodyGrace = 10 * time.Second
	bodyRate  = 64 << 10 // bytes a second

	leftoverGrace = 5 * time.Second // for what is left of a body that was refused

	smallBody     = 64 << 10 // bodies up to this come from the small budget and from pools
	largeShare    = 2 << 20  // least that a larger body reserves, so that few are read at once
	maxInflation  = 100      // decoded bytes per encoded byte
	growthFactor  = 4
	deadlineEvery = 256 << 10 // bytes between two moves of the read deadline
)

// Body buffers come in three pooled sizes; larger ones are made as they grow.
var (
	bufferSizes = [...]int{4 << 10, 16 << 10, smallBody}
	buffers     = [...]sync.Pool{
		{New: func() any { return newBuffer(bufferSizes[0]) }},
		{New: func() any { return newBuffer(bufferSizes[1]) }},
		{New: func() any { return newBuffer(bufferSizes[2]) }},
	}
)

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// intake reads one body within a budget. It is not safe for concurrent use.
type intake struct {
	admission *Admission
	limit     int64
	pooled    *[]byte // buffer to give back, nil once it grew out of the pools
	class     int     // index of the pool it came from
	buf       []byte
	held      int64 // bytes reserved
	budget    budget
}

// read reads the request's body to its end, however long it says it is, and
// refuses it as soon as it is too large, too slow, or finds no room.
func (t *intake) read(w http.ResponseWriter, r *http.Request) *Error {
	declared := r.ContentLength
	if declared > t.limit {
		return refusal(CodeTooLarge, "declared length")
	}
	if !t.start(declared) {
		return refusal(CodeOverloaded, "memory")
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	deadline := deadliner{rc: http.NewResponseController(w), start: time.Now()}
	deadline.move(0)
	err := t.fill(r.Body, declared, &deadline)
	deadline.end(err == nil)
	return err
}

// fill reads a body to its end.
func (t *intake) fill(body io.Reader, declared int64, deadline *deadliner) *Error {
	for {
		if len(t.buf) == cap(t.buf) && !t.grow(declared) {
			return refusal(CodeOverloaded, "memory")
		}
		n, err := body.Read(t.buf[len(t.buf):cap(t.buf)])
		t.buf = t.buf[:len(t.buf)+n]
		if int64(len(t.buf)) > t.limit {
			return refusal(CodeTooLarge, "bytes read")
		}
		switch {
		case err == nil:
			deadline.move(len(t.buf))
		case err == io.EOF && int64(len(t.buf)) < declared:
			return refusal(CodeIncomplete, "shorter than declared")
		case err == io.EOF:
			return nil
		default:
			return readError(err)
		}
	}
}

// readError maps an error of a body's reader to a refusal.
func readError(err error) *Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refusal(CodeTimeout, "slow body")
	case errors.As(err, &tooLarge):
		return refusal(CodeTooLarge, "bytes read")
	default: // io.ErrUnexpectedEOF, a malformed chunk, a reset connection
		return refusal(CodeIncomplete, "unreadable body")
	}
}

func refusal(code, cause string) *Error {
	return &Error{Code: code, Op: "receive", Cause: cause}
}

// start takes the first buffer: by the declared length when it is small, a
// small one when it is not or when nothing is declared, so that a claim costs
// nothing.
func (t *intake) start(declared int64) bool {
	if declared == 0 {
		return true
	}
	t.class, t.budget = 0, smallBodies
	switch {
	case declared > smallBody-1:
		t.class, t.budget = 1, beginnings
	case declared >= int64(bufferSizes[1]):
		t.class = 2
	case declared >= int64(bufferSizes[0]):
		t.class = 1
	}
	t.held = int64(bufferSizes[t.class])
	if !t.admission.reserve(t.held, t.budget) {
		t.held = 0
		return false
	}
	t.pooled = buffers[t.class].Get().(*[]byte)
	t.buf = (*t.pooled)[:0]
	return true
}

// grow moves the body to a larger buffer, reserving it first. A body that
// outgrows 64 KiB moves to the budget of large ones, and reserves more of it
// than its next buffer needs: else a flood of them would fill the budget with
// halves, and the processor with reading them.
func (t *intake) grow(declared int64) bool {
	if cap(t.buf) == 0 {
		return t.start(-1)
	}
	top := t.limit + 1
	if int64(cap(t.buf)) < declared {
		top = min(top, declared+1) // more than was declared may still come
	}
	size := int64(cap(t.buf)) * growthFactor
	if size > top {
		size = max(top, int64(cap(t.buf))+512)
	}
	budget, held := t.budget, t.held
	enough := budget == largeBodies && held >= size+int64(cap(t.buf)) // the old buffer is there until it is copied
	if !enough {
		held = size
		if budget == largeBodies || size > smallBody {
			budget, held = largeBodies, max(size, largeShare)
		}
		if !t.admission.reserve(held, budget) {
			return false
		}
	}
	next := append(make([]byte, 0, size), t.buf...)
	t.recycle()
	if !enough {
		t.forget()
	}
	t.buf, t.held, t.budget = next, held, budget
	return true
}

// recycle gives a pooled buffer back to its pool.
func (t *intake) recycle() {
	if t.pooled != nil {
		*t.pooled = (*t.pooled)[:0]
		buffers[t.class].Put(t.pooled)
		t.pooled = nil
	}
}

// free gives the buffer and its reservation back.
func (t *intake) free() {
	t.recycle()
	t.forget()
}

// forget gives the reservation back and leaves the buffer to whoever still
// reads it.
func (t *intake) forget() {
	t.admission.release(t.held, t.budget)
	t.pooled, t.buf, t.held = nil, nil, 0
}

// deadliner moves the read deadline of a connection as its body arrives.
// Where the connection knows no deadlines it does nothing.
type deadliner struct {
	rc    *http.ResponseController
	start time.Time
	moved int // bytes received when it was last moved
}

func (d *deadliner) move(received int) {
	if received > 0 && received-d.moved < deadlineEvery {
		return
	}
	d.moved = received
	d.rc.SetReadDeadline(d.start.Add(bodyGrace + time.Duration(received)*time.Second/bodyRate))
}

// end takes the deadline away from a connection whose body was read. What is
// left of another body has a moment: net/http reads some of it after the
// answer, and a sender that goes on slowly would hold the connection.
func (d *deadliner) end(whole bool) {
	if whole {
		d.rc.SetReadDeadline(time.Time{})
	} else {
		d.rc.SetReadDeadline(time.Now().Add(leftoverGrace))
	}
}

// encoding returns the Content-Encoding to undo ("" for none), or refuses it.
func (s *Source) encoding(h http.Header) (string, *Error) {
	values := h["Content-Encoding"]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) == 1 && s.Encoding != "" {
		switch strings.ToLower(strings.TrimSpace(values[0])) {
		case "gzip", "x-gzip":
			return "gzip", nil
		case "", "identity":
			return "", nil
		}
	}
	if len(values) == 1 && strings.EqualFold(strings.TrimSpace(values[0]), "identity") {
		return "", nil
	}
	return "", refusal(CodeEncoding, "content encoding")
}

// decode undoes gzip within the source's body limit and a bound on how much
// the bytes may inflate, one buffer at a time.
func (t *intake) decode(encoded []byte) *Error {
	z, err := gzip.NewReader(bytes.NewReader(encoded))
	if err != nil {
		return refusal(CodeUnreadable, "gzip")
	}
	limit := min(t.limit, int64(len(encoded))*maxInflation)
	for {
		if len(t.buf) == cap(t.buf) && !t.grow(0) {
			return refusal(CodeOverloaded, "memory")
		}
		n, err := z.Read(t.buf[len(t.buf):cap(t.buf)])
		t.buf = t.buf[:len(t.buf)+n]
		if int64(len(t.buf)) > limit {
			return refusal(CodeTooLarge, "decoded bytes")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return refusal(CodeUnreadable, "gzip")
		}
	}
}
