package ichido

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pathAllowed compares the last segment of the path with the source's tokens,
// always with all of them.
func (in *Inbox) pathAllowed(r *http.Request) bool {
	if len(in.tokens) == 0 {
		return true
	}
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	given := sha256.Sum256([]byte(path[strings.LastIndexByte(path, '/')+1:]))
	match := 0
	for i := range in.tokens {
		match |= subtle.ConstantTimeCompare(given[:], in.tokens[i][:])
	}
	return match == 1
}

// probe answers everything that is not a POST: a handshake of the provider,
// or 405. No body is read, so that a connection with one is closed.
func (in *Inbox) probe(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		closeAfter(w)
	}
	d := &Delivery{Method: r.Method, Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery, Header: r.Header, ReceivedAt: time.Now()}
	if in.challenger != nil && in.challenger.Challenge(w, d, false) {
		in.src.Observe("challenge", "")
		return
	}
	w.Header().Set("Allow", http.MethodPost)
	in.refuse(w, refusal(CodeMethod, "method"))
}

// NotFound returns a handler that answers every request 404, after the same
// work as a source does for a body it cannot verify, so that time does not
// tell which paths exist. a may be nil.
func NotFound(a *Admission) http.Handler {
	if a == nil {
		a = &Admission{}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notFound.serve(w, r, a)
	})
}

// decoy does the work of a source that is not there.
type decoy struct{ macs sync.Pool }

var notFound = func() *decoy {
	key := make([]byte, 32)
	rand.Read(key)
	return &decoy{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}()

func (x *decoy) serve(w http.ResponseWriter, r *http.Request, a *Admission) {
	body := intake{admission: a, limit: defaultBodyLimit}
	defer body.free()
	whole := a.admit() == nil && body.read(w, r) == nil
	mac := x.macs.Get().(hash.Hash)
	mac.Reset()
	mac.Write(body.buf)
	sum := mac.Sum(make([]byte, 0, sha256.Size))
	x.macs.Put(mac)
	subtle.ConstantTimeCompare(sum, sum)
	if !whole {
		closeAfter(w)
	}
	writeProblem(w, CodeNotFound)
}
