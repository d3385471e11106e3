package sqlite

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFolderIsFlushed(t *testing.T) {
	dir := t.TempDir()
	if err := syncFolder(filepath.Join(dir, "ichido.db")); err != nil {
		t.Error(err)
	}
	err := syncFolder(filepath.Join(dir, "missing", "ichido.db"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "flush the folder of the database") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
