package sqlite

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// The shapes in which drivers give SQLite's result code.
type (
	withCode          struct{ code int }
	withMethod        struct{ code uint16 }
	withField         struct{ ExtendedCode int }
	ExtendedErrorCode uint16
)

func (withCode) Error() string            { return "x" }
func (e withCode) Code() int              { return e.code }
func (withMethod) Error() string          { return "x" }
func (e withMethod) ExtendedCode() uint16 { return e.code }
func (withField) Error() string           { return "x" }
func (ExtendedErrorCode) Error() string   { return "x" }

func TestTheResultCodeIsFoundInTheErrorOfEveryDriver(t *testing.T) {
	const failedFlush = codeIOErr | 4<<8
	for _, err := range []error{
		withCode{failedFlush},
		withMethod{failedFlush},
		withField{failedFlush},
		ExtendedErrorCode(failedFlush),
		errors.Join(errors.New("x"), ExtendedErrorCode(failedFlush)),
	} {
		if got := classify(fmt.Errorf("commit: %w", err)); got != broken {
			t.Errorf("a failed flush as %T is %q, want %q", err, got, broken)
		}
	}
	for _, err := range []error{errors.New("x"), syscall.Errno(codeIOErr)} {
		if got := classify(err); got != rejected {
			t.Errorf("%T without a result code is %q, want %q", err, got, rejected)
		}
	}
}
