package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is written as a number with a unit: 90s, 5m, 72h, 30d.
type Duration time.Duration

// UnmarshalText reads a duration; a bare number has no unit and is refused.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if days, found := strings.CutSuffix(s, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a duration; write for example 30d, 72h or 90s", s)
		}
		*d = Duration(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration; write for example 90s, 5m, 72h or 30d", s)
	}
	if v <= 0 {
		return fmt.Errorf("%q is not positive; leave the setting out for its default", s)
	}
	*d = Duration(v)
	return nil
}

// Keep is how long something stays: a duration, or the word forever.
type Keep time.Duration

// Forever keeps without an end.
const Forever Keep = -1

// UnmarshalText reads a duration or the word forever.
func (k *Keep) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*k = Forever
		return nil
	}
	return (*Duration)(k).UnmarshalText(text)
}

// Before returns the time before which nothing stays, zero for none.
func (k Keep) Before(now time.Time) time.Time {
	if k == Forever {
		return time.Time{}
	}
	return now.Add(-time.Duration(k))
}

// Size is a number of bytes, written with a unit: 64KiB, 1MiB, 2GiB, 512B.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText reads a size; a bare number has no unit and is refused.
func (z *Size) UnmarshalText(text []byte) error {
	s := string(text)
	for _, unit := range sizeUnits {
		digits, found := strings.CutSuffix(s, unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/unit.bytes {
			break
		}
		*z = Size(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size; write for example 64KiB, 1MiB or 2GiB", s)
}

// Rate is a number of events per second, written 100/s; per minute 100/m.
type Rate float64

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	s := string(text)
	digits, per, found := strings.Cut(s, "/")
	n, err := strconv.ParseUint(digits, 10, 32)
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[per]
	if !found || err != nil || n == 0 || seconds == 0 {
		return fmt.Errorf("%q is not a rate; write for example 100/s or 600/m", s)
	}
	*r = Rate(float64(n) / seconds)
	return nil
}
