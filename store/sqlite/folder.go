package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// syncFolder flushes the folder that a file is in, so that the name of a file
// that was just made survives a power cut as its content does. Windows has no
// such flush, and some file systems need none. flush is (*os.File).Sync.
func syncFolder(path string, flush func(*os.File) error) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("flush the folder of the database: %w", err)
	}
	err = flush(folder)
	if runtime.GOOS == "windows" || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	if err = errors.Join(err, folder.Close()); err != nil {
		return fmt.Errorf("flush the folder of the database: %w", err)
	}
	return nil
}
