//go:build linux || darwin || freebsd

package sqlite

import "syscall"

// freeSpace returns the bytes that a process may still write beside path.
func freeSpace(path string) (uint64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true
}
