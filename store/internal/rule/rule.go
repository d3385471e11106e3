// Package rule holds what every store does alike: what it refuses to put, how
// it cuts a cause, how a handler runs inside a transaction.
//
// It keeps nothing and knows no database.
package rule

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode"

	"ichido.dev/ichido"
)

// MaxPendingKeys is how many keys of held claims ichido.Stats has.
const MaxPendingKeys = 100

const maxCause = 256 // bytes

// CheckPut refuses records that could never be settled, or never be worked.
func CheckPut(records []ichido.Record) error {
	for i := range records {
		r := &records[i]
		if r.State == ichido.Claimed && (r.Token == 0 || r.Lease <= 0) {
			return fmt.Errorf("put events: %s is claimed without a token or a lease", r.ID())
		}
		if r.Purged && r.State != ichido.Done {
			return fmt.Errorf("put events: %s has no body and is not done: it could never be worked", r.ID())
		}
	}
	return nil
}

// Cause returns the start of a text: what of it is printable, at most 256
// bytes.
func Cause(s string) string {
	if s == "" {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxCause {
		s = strings.ToValidUTF8(s[:maxCause], "")
	}
	return s
}

// Milliseconds returns t in the resolution that all stores keep.
func Milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// Token returns a random number that is not zero and fits a signed integer.
func Token() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// Run calls a handler in a goroutine of its own, so that its panic is an error
// and its context's end is the end, whether it looks at it or not. What it
// returned counts, also when it did so at the last moment.
func Run(ctx context.Context, h func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("handler panicked: %v", p)
			}
		}()
		done <- h(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("handler: %w", ctx.Err())
	}
}
