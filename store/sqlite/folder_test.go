package sqlite

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpenFlushesTheFolder: without that a power cut may take a new database
// along, name and all.
func TestOpenFlushesTheFolder(t *testing.T) {
	open := func(result error) (flushed []string, err error) {
		path := filepath.Join(t.TempDir(), "ichido.db")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s, err := Open(t.Context(), db, Options{MinFree: -1, flush: func(folder *os.File) error {
			if st, err := os.Stat(path); err != nil || st.Size()+size(t, path+"-wal") == 0 {
				t.Errorf("the folder is flushed before there is a database: %v", err)
			}
			if folder.Name() != filepath.Dir(path) {
				t.Errorf("%s is flushed, not %s", folder.Name(), filepath.Dir(path))
			}
			flushed = append(flushed, folder.Name())
			return result
		}})
		if err != nil {
			return flushed, err
		}
		return flushed, s.Close()
	}
	for _, result := range []error{nil, errors.ErrUnsupported, syscall.EINVAL} {
		if flushed, err := open(result); err != nil || len(flushed) != 1 {
			t.Errorf("a flush that returns %v: %d flushes, %v", result, len(flushed), err)
		}
	}
	if _, err := open(syscall.EIO); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "flush the folder of the database") {
		t.Errorf("a flush that fails: %v", err)
	}
}

func size(t *testing.T, path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

func TestTheFolderIsFlushed(t *testing.T) {
	flush := Options{}.withDefaults().flush
	dir := t.TempDir()
	if err := syncFolder(filepath.Join(dir, "ichido.db"), flush); err != nil {
		t.Error(err)
	}
	err := syncFolder(filepath.Join(dir, "missing", "ichido.db"), flush)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "flush the folder of the database") {
		t.Errorf("a folder that is not there: %v", err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flush(folder); !errors.Is(err, os.ErrClosed) {
		t.Errorf("flushing a folder that is closed returns %v: it does not ask the system", err)
	}
}
