package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ichido.dev/ichido/internal/config"
)

// coded is an error of a driver for SQLite.
type coded int

func (c coded) Error() string { return fmt.Sprint("code ", int(c)) }
func (c coded) Code() int     { return int(c) }

// TestWhatCannotBeReachedIsNotSaidToBeMissing: who may not read a store, or
// not write beside it, is told so, and what to do.
func TestWhatCannotBeReachedIsNotSaidToBeMissing(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "a/b.db", Err: syscall.EACCES}
	readOnly := &fs.PathError{Op: "mkdir", Path: "ichido-data", Err: syscall.EROFS}
	missing := &fs.PathError{Op: "open", Path: "a/b.db", Err: syscall.ENOENT}
	inUse := fmt.Errorf("listen for deliveries: %w", os.NewSyscallError("bind", syscall.EADDRINUSE))
	low := fmt.Errorf("listen for deliveries: %w", os.NewSyscallError("bind", syscall.EACCES))
	for _, test := range []struct {
		name, text, hint string
		code             int
		err              error
	}{
		{"store of somebody else", "open store a/b.db: permission denied", "run as its owner", exitError, storeError("a/b.db", denied)},
		{"store on a read-only disk", "open store a/b.db: read-only file system", "allowed to write", exitError, storeError("a/b.db", readOnly)},
		{"folder of somebody else", "open store a/b.db: resolve", "run as its owner", exitError, storeError("a/b.db", fmt.Errorf("resolve: %w", coded(1544)))},
		{"no store", "there is no store at a/b.db", "makes one", exitError, storeError("a/b.db", missing)},
		{"no folder for it", "open store a/b.db: the folder", "make a first", exitError, storeError("a/b.db", errNoFolder)},
		{"first run where nothing may be written", "read-only file system", "a folder that you may write to", exitError, firstRunError(readOnly)},
		{"first run in the folder of somebody else", "permission denied", "--config", exitError, firstRunError(denied)},
		{"configuration of somebody else", "permission denied", "run as that user", exitUsage, unreadable("a/b.yaml", "--config", denied)},
		{"port in use", "address already in use", "stop it; or --listen", exitError, listenError(inUse)},
		{"port of the system", "permission denied", "ports under 1024", exitError, listenError(low)},
	} {
		var f *failure
		if !errors.As(test.err, &f) || f.code != test.code {
			t.Errorf("%s: %v is no failure with code %d", test.name, test.err, test.code)
			continue
		}
		if !strings.Contains(f.Error(), test.text) || !strings.Contains(f.hint, test.hint) {
			t.Errorf("%s: it says %q with hint %q; want %q with hint %q", test.name, f, f.hint, test.text, test.hint)
		}
	}
}

func TestOnlyTheLastFolderOfAStoreIsMade(t *testing.T) {
	dir := t.TempDir()
	if err := makeStore(filepath.Join(dir, "new", "a.db")); err != nil {
		t.Errorf("in a folder that is there: %v", err)
	}
	if err := makeStore(filepath.Join(dir, "no", "such", "a.db")); !errors.Is(err, errNoFolder) {
		t.Errorf("in a folder of a folder that is not there: error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder of a mistyped path was made: %v", err)
	}
}

// TestInboxThatIsNotOnDiskIsRefused: before anything is made, whatever names
// it. A file with a colon can still be meant.
func TestInboxThatIsNotOnDiskIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	a := newApp(Env{Driver: "sqlite"})
	for _, store := range []string{"sqlite::memory:", "sqlite::memory:?cache=shared", "sqlite:file::memory:", "sqlite:file:x.db?mode=memory"} {
		flag := place{store: store}
		var f *failure
		if err := flag.checkStore(); !errors.As(err, &f) || f.code != exitUsage || !strings.Contains(f.Error(), errNotOnDisk.Error()) {
			t.Errorf("--store %s: error %v", store, err)
		}
		_, _, err := a.openStore(t.Context(), &config.Config{Store: store}, true)
		if !errors.Is(err, errNotOnDisk) || !errors.As(err, &f) || f.hint == "" {
			t.Errorf("store: %s in a configuration: error %v", store, err)
		}
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("what was refused left %v, error %v", left, err)
	}
	_, done, err := a.openStore(t.Context(), &config.Config{Store: "sqlite:./:memory:"}, true)
	if err != nil {
		t.Fatalf("a file with that name: %v", err)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("./:memory:"); err != nil {
		t.Errorf("a file with that name: %v", err)
	}
}

func TestOnlyADatabaseOrNothingIsOpenedAsAStore(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name, content string
		want          error
	}{
		{"empty", "", nil},
		{"database", "SQLite format 3\x00 and more", nil},
		{"short text", "a", errNotDatabase},
		{"a part of the magic", "SQLite format 3", errNotDatabase},
		{"long text", strings.Repeat("text", 100), errNotDatabase},
	} {
		path := filepath.Join(dir, test.name)
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := look(path); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
	}
	if err := look(dir); !errors.Is(err, errFolder) {
		t.Errorf("a folder: error %v, want %v", err, errFolder)
	}
}

func TestProgramIsCalledAgainByAWayThatWorks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ichido")
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	if got := callable("/tmp/go-build123/b001/exe/ichido"); got != "go run ./cmd/ichido" {
		t.Errorf("made by go run: called %q", got)
	}
	if got := callable(path); got != path {
		t.Errorf("outside the shell's path: called %q, want %q", got, path)
	}
	t.Setenv("PATH", dir)
	if got := callable(path); got != "ichido" {
		t.Errorf("in the shell's path: called %q", got)
	}
}
