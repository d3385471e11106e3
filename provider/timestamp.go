package provider

import (
	"net/http"
	"strconv"
	"time"
)

// Units of timestamps.
const (
	unitSeconds = "s"
	unitMillis  = "ms"
	unitRFC3339 = "rfc3339"
	unitISO     = "iso-utc"   // without a zone, in UTC
	unitHTTP    = "http-date" // IMF-fixdate
)

const isoLayout = "2006-01-02T15:04:05"

// parseTime reads a timestamp in exactly the form that its unit is written
// in: no sign, no leading zero, no exponent, no white space, and a number of
// digits that no other unit has. The text is never written anew: what is
// signed is what was received.
func parseTime(text, unit string) (time.Time, bool) {
	switch unit {
	case unitSeconds:
		n, ok := parseDigits(text, 9, 11)
		return time.Unix(n, 0), ok
	case unitMillis:
		n, ok := parseDigits(text, 12, 14)
		return time.UnixMilli(n), ok
	case unitRFC3339:
		return parseClock(text, time.RFC3339, true)
	case unitISO:
		return parseClock(text, isoLayout, false)
	case unitHTTP:
		t, err := time.Parse(http.TimeFormat, text)
		return t, err == nil && t.Format(http.TimeFormat) == text && plausible(t)
	}
	return time.Time{}, false
}

func parseDigits(text string, least, most int) (int64, bool) {
	if len(text) < least || len(text) > most || text[0] == '0' {
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// parseClock reads a date and time whose digits and marks stand exactly where
// they belong. time.Parse alone also takes a comma for the fraction.
func parseClock(text, layout string, zone bool) (time.Time, bool) {
	const shape = "0000-00-00T00:00:00"
	if len(text) < len(shape) || len(text) > len(shape)+16 {
		return time.Time{}, false
	}
	for i, want := range []byte(shape) {
		digit := text[i] >= '0' && text[i] <= '9'
		if want == '0' && !digit || want != '0' && text[i] != want {
			return time.Time{}, false
		}
	}
	rest := text[len(shape):]
	if len(rest) > 0 && rest[0] == '.' {
		i := 1
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
			i++
		}
		if i == 1 || i > 10 {
			return time.Time{}, false
		}
		rest = rest[i:]
	}
	offset := len(rest) == 6 && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':'
	if zone && rest != "Z" && !offset || !zone && rest != "" {
		return time.Time{}, false
	}
	t, err := time.Parse(layout, text)
	return t.UTC(), err == nil && plausible(t)
}

// plausible refuses years that no sender's clock shows and that, moved by an
// offset, would not be written with four digits.
func plausible(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9000 }

// formatTime writes a time as a sender does.
func formatTime(t time.Time, unit string) string {
	switch unit {
	case unitMillis:
		return strconv.FormatInt(t.UnixMilli(), 10)
	case unitRFC3339:
		return t.UTC().Format(time.RFC3339)
	case unitISO:
		return t.UTC().Format(isoLayout)
	case unitHTTP:
		return t.UTC().Format(http.TimeFormat)
	default:
		return strconv.FormatInt(t.Unix(), 10)
	}
}

// fresh compares a signed time with the receiver's clock, both directions,
// the edges included. It counts whole seconds where the sender does and
// milliseconds where the sender does, in integers of both clocks: a
// time.Duration would saturate for far times.
func fresh(signed, now time.Time, unit string, tolerance time.Duration) error {
	var off, limit int64
	if unit == unitSeconds || unit == unitHTTP {
		off, limit = signed.Unix()-now.Unix(), int64(tolerance/time.Second)
	} else {
		off, limit = signed.UnixMilli()-now.UnixMilli(), tolerance.Milliseconds()
	}
	if off >= -limit && off <= limit {
		return nil
	}
	if unit != unitSeconds && unit != unitHTTP {
		off /= 1000
	}
	return stale(off)
}
