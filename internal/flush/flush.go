// Package flush makes the names of new files and folders survive a power cut,
// as their contents do once they are flushed.
//
// It flushes no contents.
package flush

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Name flushes the folder that path is in. Windows has no such flush, and some
// file systems need none. sync is (*os.File).Sync.
func Name(path string, sync func(*os.File) error) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = sync(folder)
	if runtime.GOOS == "windows" || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}
