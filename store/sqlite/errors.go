package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"ichido.dev/ichido"
)

// class is what an error of the database means for the store.
type class string

const (
	rejected      class = "rejected"  // one statement was refused; the database is well
	busyElsewhere class = "locked"    // another process holds the write lock
	diskFull      class = "disk_full" // passes when there is room again
	broken        class = "broken"    // nobody knows what the disk holds
	busyHere      class = "busy"      // the committer's queue is full
	closing       class = "closed"
)

// SQLite's result codes; the low byte is the kind, the rest says more.
const (
	codeBusy       = 5
	codeLocked     = 6
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeProtocol   = 15
	codeConstraint = 19
	codeNotADB     = 26
	codeIOErrShmSz = codeIOErr | 19<<8 // the shared-memory file could not grow
)

func classify(err error) class {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, errFile) {
		return broken
	}
	code, ok := resultCode(err)
	if !ok {
		return rejected
	}
	if code == codeIOErrShmSz {
		return diskFull
	}
	switch code & 0xff {
	case codeIOErr, codeCorrupt, codeNotADB:
		return broken
	case codeFull:
		return diskFull
	case codeBusy, codeLocked, codeProtocol:
		return busyElsewhere
	}
	return rejected
}

// resultCode finds SQLite's result code in an error of any driver, without
// importing one: it is in a method or a field, of one integer type or another.
func resultCode(err error) (code int64, ok bool) {
	switch e := err.(type) {
	case nil:
		return 0, false
	case interface{ Code() int }: // modernc.org/sqlite
		return int64(e.Code()), true
	}
	v := reflect.ValueOf(err)
	m := v.MethodByName("ExtendedCode") // ncruces/go-sqlite3
	if m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		return integer(m.Call(nil)[0])
	}
	if v.CanUint() && v.Type().Name() == "ExtendedErrorCode" { // the same driver, where it has no more to say
		return integer(v)
	}
	if s := reflect.Indirect(v); s.Kind() == reflect.Struct { // mattn/go-sqlite3
		if f := s.FieldByName("ExtendedCode"); f.IsValid() {
			return integer(f)
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return resultCode(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if code, ok := resultCode(err); ok {
				return code, true
			}
		}
	}
	return 0, false
}

func integer(v reflect.Value) (int64, bool) {
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), true
	}
	return 0, false
}

// unavailable says that the store could not do what op says, and why: cause
// is a word of the class.
func unavailable(op string, cause class, err error) error {
	if errors.Is(err, ichido.ErrUnavailable) {
		return err
	}
	e := &ichido.Error{Code: ichido.CodeUnavailable, Op: op, Cause: string(cause), Err: ichido.ErrUnavailable}
	if err != nil {
		e.Err = fmt.Errorf("%w: %w", ichido.ErrUnavailable, err)
	}
	switch cause {
	case broken:
		if !errors.Is(err, errFile) { // which says it
			e.Hint = "restart the process; check the disk"
		}
	case diskFull:
		e.Hint = "free disk space"
	case busyElsewhere:
		e.Hint = "stop the other process, or use another database"
	}
	return e
}

// readError is for errors of reads, which go through the pool.
func readError(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return unavailable(op, classify(err), err)
}
