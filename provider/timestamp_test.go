package provider

import (
	"math"
	"testing"
	"time"

	"ichido.dev/ichido"
)

func TestTimestampsHaveOneForm(t *testing.T) {
	tests := []struct {
		unit, text string
		want       int64 // milliseconds; 0 to refuse
	}{
		{unitSeconds, "1767225600", 1767225600000},
		{unitSeconds, "946684800", 946684800000}, // nine digits, the year 2000
		{unitSeconds, "1767225600000", 0},
		{unitSeconds, "01767225600", 0},
		{unitSeconds, "+1767225600", 0},
		{unitSeconds, "-1767225600", 0},
		{unitSeconds, "1767225600.0", 0},
		{unitSeconds, "17672256e2", 0},
		{unitSeconds, "253402300800", 0}, // the year 10000
		{unitSeconds, "9223372036854775807", 0},
		{unitSeconds, "", 0},
		{unitSeconds, "Infinity", 0},
		{unitMillis, "1767225600123", 1767225600123},
		{unitMillis, "1767225600", 0},
		{unitMillis, "1767225600000000", 0},
		{unitRFC3339, "2026-01-01T00:00:00Z", 1767225600000},
		{unitRFC3339, "2026-01-01T02:00:00.5+02:00", 1767225600500},
		{unitRFC3339, "2026-01-01T00:00:00", 0},
		{unitRFC3339, "2026-01-01 00:00:00Z", 0},
		{unitRFC3339, "2026-01-01T00:00:00,5Z", 0},
		{unitRFC3339, "2026-13-01T00:00:00Z", 0},
		{unitRFC3339, "2026-02-30T00:00:00Z", 0},
		{unitRFC3339, "2026-01-01T24:00:00Z", 0},
		{unitRFC3339, "2026-01-01T00:00:00.Z", 0},
		{unitRFC3339, "0000-01-01T00:00:00Z", 0},
		{unitRFC3339, "2026-01-01t00:00:00z", 0},
		{unitISO, "2026-01-01T00:00:00", 1767225600000},
		{unitISO, "2026-01-01T00:00:00.250", 1767225600250},
		{unitISO, "2026-01-01T00:00:00Z", 0},
		{unitHTTP, "Thu, 01 Jan 2026 00:00:00 GMT", 1767225600000},
		{unitHTTP, "Fri, 01 Jan 2026 00:00:00 GMT", 0},
		{unitHTTP, "Thursday, 01-Jan-26 00:00:00 GMT", 0},
		{unitHTTP, "Thu, 1 Jan 2026 00:00:00 GMT", 0},
		{"fortnights", "1767225600", 0},
	}
	for _, tt := range tests {
		got, ok := parseTime(tt.text, tt.unit)
		if ok != (tt.want != 0) || ok && got.UnixMilli() != tt.want {
			t.Errorf("%s %q: %v, %v", tt.unit, tt.text, got, ok)
		}
	}
}

// A far time must not wrap around into the window.
func TestFreshnessDoesNotOverflow(t *testing.T) {
	now := time.Unix(1767225600, 0)
	for _, far := range []time.Time{time.Unix(253402300800, 0), time.Unix(math.MaxInt32, 0), time.Unix(1<<53, 0), time.Unix(-1<<53, 0), time.Unix(0, 0), time.Unix(math.MaxInt64/2, 0), time.Unix(math.MinInt64/2, 0)} {
		for _, unit := range []string{unitSeconds, unitHTTP} {
			if err := fresh(far, now, unit, 300*time.Second); codeOf(err) != ichido.CodeSignature {
				t.Errorf("%v is fresh by %s", far.Unix(), unit)
			}
		}
	}
	for _, tt := range []struct {
		unit string
		off  time.Duration
		ok   bool
	}{
		{unitSeconds, 300 * time.Second, true},
		{unitSeconds, 301 * time.Second, false},
		{unitSeconds, -300 * time.Second, true},
		{unitSeconds, -301 * time.Second, false},
		{unitMillis, 300 * time.Second, true},
		{unitMillis, 300*time.Second + time.Millisecond, false},
		{unitMillis, -300*time.Second - time.Millisecond, false},
	} {
		if err := fresh(now.Add(tt.off), now, tt.unit, 300*time.Second); (err == nil) != tt.ok {
			t.Errorf("%s %v: %v", tt.unit, tt.off, err)
		}
	}
}
