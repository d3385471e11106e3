package sqlite

import "time"

// disk keeps an eye on the free space beside the database.
type disk struct {
	path string
	min  int64                            // bytes; none where it is not positive
	free func(path string) (uint64, bool) // freeSpace where nil; tests set it

	looked time.Time
	isLow  bool
}

// low reports whether there is less free space than the minimum. It looks no
// more than once a second.
func (d *disk) low(now time.Time) bool {
	if d.min <= 0 {
		return false
	}
	if age := now.Sub(d.looked); !d.looked.IsZero() && age >= 0 && age < time.Second {
		return d.isLow
	}
	free := d.free
	if free == nil {
		free = freeSpace
	}
	n, ok := free(d.path)
	d.looked, d.isLow = now, ok && n < uint64(d.min)
	return d.isLow
}
