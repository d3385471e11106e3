package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// syncOnce measures what one durable write costs on the disk of dir: n times
// a 4 KiB append and fdatasync. It returns the median.
func syncOnce(dir string, n int) (time.Duration, error) {
	path := filepath.Join(dir, "sync")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer os.Remove(path)
	defer f.Close()
	block := make([]byte, 4096)
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[n/2], nil
}

// flushes returns how many flush requests the disk of dir has completed since
// it was started, by all programs; -1 where the kernel does not say.
func flushes(dir string) int64 {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return -1
	}
	major, minor := st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&^0xff
	f, err := os.Open("/proc/diskstats")
	if err != nil {
		return -1
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 20 || fields[0] != fmt.Sprint(major) || fields[1] != fmt.Sprint(minor) {
			continue
		}
		if n, err := strconv.ParseInt(fields[18], 10, 64); err == nil {
			return n
		}
	}
	return -1
}
