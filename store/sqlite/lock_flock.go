//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// mapFile maps a file of at least size bytes: what is written to the map is in
// the file, also after the end of the process.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmapFile(file []byte) error { return syscall.Munmap(file) }

// lockFile takes an exclusive lock that the operating system ends with the
// process, however it ends. It returns nil where another one holds it. The
// file stays when the lock is given up: removing it would let two processes
// lock two files of the same name.
func lockFile(path string) (f *os.File, supported bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, true, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, true, f.Close()
	}
	if err != nil {
		f.Close()
		return nil, true, err
	}
	return f, true, nil
}
