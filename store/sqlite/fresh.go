package sqlite

import (
	"slices"
	"sync"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// freshBytes bounds the bodies that are kept in memory, and freshFor the time
// that one of them may take the place of others.
const (
	freshBytes = 8 << 20
	freshFor   = int64(time.Minute / time.Millisecond)
)

// fresh remembers what was accepted lately, as far as it never changes: most
// events are claimed within milliseconds, and reading them back from the
// database costs as much as a fifth of their life. Whether an event is there
// to be claimed is the database's to say, always.
type fresh struct {
	mu    sync.Mutex // guards everything below
	bySeq map[int64]ichido.Record
	order []aged // oldest first; holds those that were taken, too
	bytes int
}

type aged struct {
	seq, at int64 // at: ms
}

// remember keeps copies of accepted records as long as there is room. When
// there is none the older ones stay, because they are claimed before; but not
// for ever, since their source may have no worker.
func (f *fresh) remember(records []ichido.Record, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bySeq == nil {
		f.bySeq = map[int64]ichido.Record{}
	}
	gone := 0
	for _, old := range f.order {
		if _, ok := f.bySeq[old.seq]; ok && now-old.at < freshFor {
			break
		}
		f.forget(old.seq)
		gone++
	}
	f.order = f.order[gone:]
	if len(f.order) > 2*len(f.bySeq)+1024 {
		f.order = slices.DeleteFunc(f.order, func(a aged) bool {
			_, ok := f.bySeq[a.seq]
			return !ok
		})
	}
	for i := range records {
		r := &records[i]
		size := len(r.Header) + len(r.Body)
		if f.bytes+size > freshBytes {
			return
		}
		f.bySeq[r.Seq] = *r
		f.order = append(f.order, aged{r.Seq, now})
		f.bytes += size
	}
}

// room reports whether remember would keep a record of that size.
func (f *fresh) room(size int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes+size <= freshBytes
}

func (f *fresh) forget(seq int64) (r ichido.Record, ok bool) {
	r, ok = f.bySeq[seq]
	if ok {
		delete(f.bySeq, seq)
		f.bytes -= len(r.Header) + len(r.Body)
	}
	return r, ok
}

// take gives each claimed record what is remembered of it, which is forgotten
// then, and returns the indices of the others.
func (f *fresh) take(claimed []ichido.Record) (others []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range claimed {
		r, ok := f.forget(claimed[i].Seq)
		if !ok {
			others = append(others, i)
			continue
		}
		setFixed(&claimed[i], &r)
	}
	return others
}

// setFixed sets what never changes about an event.
func setFixed(r, from *ichido.Record) {
	r.Hash, r.Source, r.Key, r.Type, r.TypeSigned = from.Hash, from.Source, from.Key, from.Type, from.TypeSigned
	r.Fingerprint, r.Strength, r.Scheme, r.Secret = from.Fingerprint, from.Strength, from.Scheme, from.Secret
	r.Time, r.ReceivedAt = from.Time, from.ReceivedAt
	r.Header, r.Body = from.Header, from.Body
}

// copyOf returns what is to be remembered of an accepted record, in memory of
// its own, as the database would give it back.
func copyOf(r *ichido.Record, seq int64) ichido.Record {
	var c ichido.Record
	setFixed(&c, r)
	c.Seq = seq
	c.Time, c.ReceivedAt = rule.Milliseconds(r.Time), rule.Milliseconds(r.ReceivedAt)
	bytes := append(append(make([]byte, 0, len(r.Header)+len(r.Body)), r.Header...), r.Body...)
	c.Header, c.Body = bytes[:len(r.Header):len(r.Header)], bytes[len(r.Header):]
	return c
}
