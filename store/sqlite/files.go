package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// files are those that the store has open by their names. Whoever removes or
// replaces one leaves the store with a file that nobody finds: what is
// acknowledged goes there, a lock on it keeps no other process out, and SQLite
// notices nothing.
type files struct {
	mu     sync.Mutex             // guards everything below
	open   map[string]os.FileInfo // by path; nil for one that was not there yet
	looked time.Time
}

// errFile is why a store fails whose files are not what it has open.
var errFile = errors.New("a file of the database is not the one that is open")

// watch has check compare the file of that name with one that is open; nil
// stands for the one that will be found first.
func (f *files) watch(path string, open os.FileInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[string]os.FileInfo{}
	}
	f.open[path] = open
}

// watchFile is watch for a file of this process.
func (f *files) watchFile(open *os.File) error {
	info, err := open.Stat()
	if err == nil {
		f.watch(open.Name(), info)
	}
	return err
}

// check says which file is gone or another one. It looks no more than once a
// second. One that cannot be looked at is taken for the same.
func (f *files) check(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.looked); !f.looked.IsZero() && age >= 0 && age < time.Second {
		return nil
	}
	f.looked = now
	for path, open := range f.open {
		found, err := os.Stat(path)
		switch {
		case open == nil && err == nil:
			f.open[path] = found
		case open == nil:
		case errors.Is(err, fs.ErrNotExist):
			return replaced(path, "removed or renamed")
		case err == nil && !os.SameFile(open, found):
			return replaced(path, "replaced")
		}
	}
	return nil
}

func replaced(path, how string) error {
	return fmt.Errorf("%w: %s was %s by somebody else; stop what did that, put back the files that were there, and start the process again", errFile, path, how)
}

// check fails the store for good when a file of it is gone or another one.
func (s *Store) check() error {
	if err := s.files.check(s.opt.Clock()); err != nil {
		s.fail(err)
	}
	return s.Err()
}
