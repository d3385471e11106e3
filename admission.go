package ichido

import "sync/atomic"

// Admission bounds what requests that nobody has verified yet may cost. A
// request's memory is reserved as its bytes arrive, before they are read, and
// a request that cannot reserve is answered 503 and its connection closed.
// Small bodies have a budget of their own, so that a flood of large ones does
// not keep them out.
//
// The zero value is ready to use. Share one between the sources of a process;
// all methods are safe for concurrent use.
type Admission struct {
	Small int64 // bytes for bodies up to 64 KiB; 24 MiB by default
	Large int64 // bytes for larger bodies; 56 MiB by default: two of 25 MiB

	// Allow, when set, is asked before a request is read; false is answered
	// 503. It bounds the rate of unauthenticated requests.
	Allow func() bool

	draining     atomic.Bool
	small, large atomic.Int64
}

const (
	defaultSmall = 24 << 20
	defaultLarge = 56 << 20
)

// Drain makes every later request be answered 503 with code [CodeDraining].
func (a *Admission) Drain() { a.draining.Store(true) }

// InUse returns how many bytes are reserved now.
func (a *Admission) InUse() int64 { return a.small.Load() + a.large.Load() }

// admit decides whether a request may be read at all.
func (a *Admission) admit() *Error {
	if a.draining.Load() {
		return &Error{Code: CodeDraining, Op: "receive"}
	}
	if a.Allow != nil && !a.Allow() {
		return &Error{Code: CodeOverloaded, Op: "receive", Cause: "unauthenticated rate"}
	}
	return nil
}

// reserve takes n bytes of a budget and reports whether there were that many.
func (a *Admission) reserve(n int64, large bool) bool {
	counter, limit := &a.small, a.Small
	if limit == 0 {
		limit = defaultSmall
	}
	if large {
		counter, limit = &a.large, a.Large
		if limit == 0 {
			limit = defaultLarge
		}
	}
	if counter.Add(n) > limit {
		counter.Add(-n)
		return false
	}
	return true
}

func (a *Admission) release(n int64, large bool) {
	if large {
		a.large.Add(-n)
	} else {
		a.small.Add(-n)
	}
}
