//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sqlite

import (
	"errors"
	"os"
)

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapFile([]byte) error { return nil }

// lockFile is not there: nothing proves that an owner of claims is gone, so
// the claims it held stay held, and are listed.
func lockFile(string) (f *os.File, supported bool, err error) { return nil, false, nil }
