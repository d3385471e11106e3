package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// What a disk writes at once: it may lose any page that was not flushed, and
// tear the last one it wrote between two sectors.
const (
	pageSize   = 4096
	sectorSize = 512
)

// disk is a VFS that remembers what has been flushed. Writes go to real files
// as usual; beside them it keeps what each file held at its last flush and
// which pages were written since. At a chosen operation the power goes: from
// then on every operation fails, and lose says what is left.
type disk struct {
	os  vfs.VFS
	rng *rand.Rand

	mu      sync.Mutex
	files   map[string]*content // by path
	ops     int64               // operations that change or flush something
	cutAt   int64               // the operation before which the power goes; 0 is never
	isCut   bool
	cut     chan struct{} // closed when the power goes
	faults  faults
	flushes int64
	writes  int64
}

// faults make operations fail. They are counted over all files of the log and
// the database.
type faults struct {
	flush, write int64 // the k-th one fails, from 1; 0 is none
	sticky       bool  // and every later one
	full         bool  // the failing write says that the disk is full
	until        int64 // with full: writes up to this one fail
}

// content is one file.
type content struct {
	flushed []byte         // as of the last flush
	exists  bool           // its entry in the folder has been flushed
	dirty   map[int64]bool // pages written since
	size    int64          // now
	deleted bool           // removed, and the folder was not flushed since
}

func newDisk(rng *rand.Rand) *disk {
	return &disk{os: vfs.Find("os"), rng: rng, files: map[string]*content{}, cut: make(chan struct{})}
}

// errPower is what every operation returns once the power has gone.
var errPower = sqlite3.IOERR

// step counts an operation and cuts the power when it is the one. mu is held.
func (d *disk) step() error {
	if d.isCut {
		return errPower
	}
	d.ops++
	if d.ops == d.cutAt {
		d.isCut = true
		close(d.cut)
		return errPower
	}
	return nil
}

// unlessCut runs f if the power has not gone, and not while it goes.
func (d *disk) unlessCut(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isCut {
		f()
	}
}

// Open implements vfs.VFS.
func (d *disk) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return nil, 0, sqlite3.CANTOPEN // OpenFilename is called instead
}

// OpenFilename implements vfs.VFSFilename.
func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isCut {
		return nil, 0, errPower
	}
	f, flags, err := d.os.(vfs.VFSFilename).OpenFilename(name, flags)
	if err != nil || name == nil {
		return f, flags, err
	}
	path := name.String()
	c := d.files[path]
	if c == nil || c.deleted {
		fresh := &content{dirty: map[int64]bool{}}
		if text, err := os.ReadFile(path); err == nil && c == nil && len(text) > 0 {
			fresh.flushed, fresh.exists = text, true // it was there before
		}
		if fresh.size, err = f.Size(); err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		c = fresh
		d.files[path] = c
	}
	return &file{File: f, d: d, c: c, log: strings.HasSuffix(path, "-wal")}, flags, nil
}

// Delete implements vfs.VFS.
func (d *disk) Delete(name string, syncDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	if c := d.files[name]; c != nil {
		c.deleted = true
		if syncDir {
			delete(d.files, name)
		}
	}
	return d.os.Delete(name, syncDir)
}

// Access implements vfs.VFS.
func (d *disk) Access(name string, flags vfs.AccessFlag) (bool, error) {
	return d.os.Access(name, flags)
}

// FullPathname implements vfs.VFS.
func (d *disk) FullPathname(name string) (string, error) { return d.os.FullPathname(name) }

// lose writes what is left after the power went to another folder: of every
// file what was flushed, and of what was written since an arbitrary part.
func (d *disk) lose(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, c := range d.files {
		if !c.exists && d.rng.IntN(2) == 0 || c.deleted && d.rng.IntN(2) == 0 {
			continue
		}
		now, err := os.ReadFile(path)
		if err != nil && !c.deleted {
			return fmt.Errorf("lose what was not flushed: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), d.left(c, now), 0o600); err != nil {
			return fmt.Errorf("lose what was not flushed: %w", err)
		}
	}
	return nil
}

// left returns what a file holds after the power went.
func (d *disk) left(c *content, now []byte) []byte {
	out := append([]byte(nil), c.flushed...)
	if d.rng.IntN(4) == 0 {
		return out // nothing since the flush got there
	}
	var torn int64 = -1
	for page := range c.dirty {
		if d.rng.IntN(2) == 0 {
			continue
		}
		torn = max(torn, page)
		out = put(out, now, page, pageSize)
	}
	if torn >= 0 && d.rng.IntN(2) == 0 { // the last one was half written
		half := out
		out = append([]byte(nil), c.flushed...)
		for page := range c.dirty {
			if page != torn {
				out = put(out, half, page, pageSize)
			}
		}
		out = put(out, now, torn, sectorSize*(1+d.rng.IntN(pageSize/sectorSize-1)))
	}
	return out
}

// put copies the first n bytes of a page, as far as there are any.
func put(to, from []byte, page int64, n int) []byte {
	begin := page * pageSize
	if begin >= int64(len(from)) {
		return to
	}
	end := min(begin+int64(n), int64(len(from)))
	for int64(len(to)) < end {
		to = append(to, make([]byte, end-int64(len(to)))...)
	}
	copy(to[begin:end], from[begin:end])
	return to
}

var _ io.Closer = (*file)(nil)
