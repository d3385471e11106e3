package ichido

import (
	"cmp"
	"sync/atomic"
)

// Admission bounds what requests that nobody has verified yet may cost. A
// request's memory is reserved as its bytes arrive, before they are read, and
// a request that cannot reserve is answered 503 and its connection closed.
// Small bodies have a budget of their own, so that a flood of large ones does
// not keep them out, and so have the first 64 KiB of larger ones, so that a few
// senders that withhold the rest do not keep the others out.
//
// The zero value is ready to use. Share one between the sources of a process;
// all methods are safe for concurrent use.
type Admission struct {
	Small int64 // bytes for bodies up to 64 KiB; 24 MiB by default
	Large int64 // bytes for larger bodies; 56 MiB by default: two of 25 MiB; and an eighth of it for their beginnings

	// Allow, when set, is asked before a request is read; false is answered
	// 503. It bounds the rate of unauthenticated requests.
	Allow func() bool

	draining atomic.Bool
	used     [3]atomic.Int64 // by budget, bytes
}

const (
	defaultSmall = 24 << 20
	defaultLarge = 56 << 20
)

// budget is what a body's memory is counted against.
type budget uint8

const (
	smallBodies budget = iota // up to 64 KiB
	beginnings                // the first 64 KiB of those that say they are larger
	largeBodies
)

// limit returns how many bytes a budget has.
func (a *Admission) limit(b budget) int64 {
	if b == smallBodies {
		return cmp.Or(a.Small, defaultSmall)
	}
	large := cmp.Or(a.Large, defaultLarge)
	if b == beginnings {
		return large / 8
	}
	return large
}

// Drain makes every later request be answered 503 with code [CodeDraining].
func (a *Admission) Drain() { a.draining.Store(true) }

// InUse returns how many bytes are reserved now.
func (a *Admission) InUse() (n int64) {
	for i := range a.used {
		n += a.used[i].Load()
	}
	return n
}

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
func (a *Admission) reserve(n int64, b budget) bool {
	if a.used[b].Add(n) > a.limit(b) {
		a.used[b].Add(-n)
		return false
	}
	return true
}

func (a *Admission) release(n int64, b budget) { a.used[b].Add(-n) }
