package main

import (
	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// file is an open file of a disk.
type file struct {
	vfs.File
	d   *disk
	c   *content
	log bool // the write-ahead log
}

var _ vfs.FileSharedMemory = (*file)(nil)

// SharedMemory is the operating system's: it is lost with the process anyway.
func (f *file) SharedMemory() vfs.SharedMemory {
	if inner, ok := f.File.(vfs.FileSharedMemory); ok {
		return inner.SharedMemory()
	}
	return nil
}

// WriteAt writes, but not to the disk yet.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		return 0, err
	}
	f.d.writes++
	if err := f.d.faults.ofWrite(f.d.writes); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(b, off)
	for page := off / pageSize; page*pageSize < off+int64(n); page++ {
		f.c.dirty[page] = true
	}
	f.c.size = max(f.c.size, off+int64(n))
	return n, err
}

// Truncate cuts the file, but not on the disk yet.
func (f *file) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		return err
	}
	f.c.size = size
	return f.File.Truncate(size)
}

// Sync makes what was written last.
func (f *file) Sync(flags vfs.SyncFlag) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		return err
	}
	f.d.flushes++
	if err := f.d.faults.ofFlush(f.d.flushes); err != nil {
		return err
	}
	return f.flush()
}

// flush takes over what was written. The real file needs no flush: it is read
// by this process only.
func (f *file) flush() error {
	size, err := f.File.Size()
	if err != nil {
		return err
	}
	if int64(len(f.c.flushed)) > size {
		f.c.flushed = f.c.flushed[:size]
	}
	var page [pageSize]byte
	for n := range f.c.dirty {
		off := n * pageSize
		if off >= size {
			continue
		}
		have := min(pageSize, size-off)
		if _, err := f.File.ReadAt(page[:have], off); err != nil {
			return err
		}
		end := off + have
		if grow := end - int64(len(f.c.flushed)); grow > 0 {
			f.c.flushed = append(f.c.flushed, make([]byte, grow)...)
		}
		copy(f.c.flushed[off:end], page[:have])
	}
	clear(f.c.dirty)
	if !f.c.exists {
		// The first flush of a new file flushes the folder too: with it the
		// entries of all others are there, and what was removed is gone.
		for path, other := range f.d.files {
			if other.exists = true; other.deleted {
				delete(f.d.files, path)
			}
		}
	}
	return nil
}

// DeviceCharacteristics promises nothing that would make SQLite write less
// carefully.
func (f *file) DeviceCharacteristics() vfs.DeviceCharacteristic { return vfs.IOCAP_POWERSAFE_OVERWRITE }

// ofFlush returns what the n-th flush fails with.
func (x *faults) ofFlush(n int64) error {
	if x.flush != 0 && (n == x.flush || x.sticky && n > x.flush) {
		return sqlite3.IOERR_FSYNC
	}
	return nil
}

// ofWrite returns what the n-th write fails with.
func (x *faults) ofWrite(n int64) error {
	switch {
	case x.write == 0:
	case x.full && n >= x.write && n <= x.until:
		return sqlite3.FULL
	case !x.full && (n == x.write || x.sticky && n > x.write):
		return sqlite3.IOERR_WRITE
	}
	return nil
}
