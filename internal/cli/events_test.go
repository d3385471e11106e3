package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestAgesCountBackFromNow: a negative one would be in the future, where
// nothing is.
func TestAgesCountBackFromNow(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		text    string
		want    time.Time
		refusal string
	}{
		{"", time.Time{}, ""},
		{"5h", now.Add(-5 * time.Hour), ""},
		{"0s", now, ""},
		{"2026-01-31T00:00:00+01:00", time.Date(2026, 1, 30, 23, 0, 0, 0, time.UTC), ""},
		{"-5h", time.Time{}, "must not be negative"},
		{"-1ns", time.Time{}, "must not be negative"},
		{"yesterday", time.Time{}, "neither a time nor an age"},
	} {
		s := selection{since: test.text, until: test.text}
		err := s.resolve(&cobra.Command{}, now)
		if test.refusal == "" {
			if err != nil || !s.filter.Since.Equal(test.want) || !s.filter.Until.Equal(test.want) {
				t.Errorf("%q: since %v, until %v, error %v; want %v", test.text, s.filter.Since, s.filter.Until, err, test.want)
			}
			continue
		}
		var f *failure
		if !errors.As(err, &f) || f.code != exitUsage || !strings.Contains(err.Error(), test.refusal) || f.hint == "" {
			t.Errorf("%q: error %v, want one that says it %s", test.text, err, test.refusal)
		}
	}
}
