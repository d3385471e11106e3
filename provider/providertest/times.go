package providertest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// malformedTimes: a timestamp has one spelling. Each of these is signed by the
// sender's key, so that only its form can be why it is refused.
func (r *runner) malformedTimes() {
	if r.c.SignTime == nil {
		return
	}
	for _, text := range r.times() {
		r.refuse("timestamps", "a text that readers take for different times, or for none, is no time", r.c.SignTime(r.c.Body, text),
			fmt.Sprintf("the timestamp %.40q", text))
	}
}

// times are malformed timestamps, and times that are far away.
func (r *runner) times() []string {
	seconds := strconv.FormatInt(r.c.Now.Unix(), 10)
	millis := strconv.FormatInt(r.c.Now.UnixMilli(), 10)
	right, wrong := seconds, millis
	if r.c.Unit == time.Millisecond {
		right, wrong = millis, seconds
	}
	arabic := strings.Map(func(c rune) rune { return c - '0' + '\u0660' }, right)
	wide := strings.Map(func(c rune) rune { return c - '0' + '\uff10' }, right)
	return []string{
		"", "0", "-1", "1", wrong, right + "000", right[:len(right)-3],
		"+" + right, "-" + right, "0" + right, "00" + right,
		" " + right, right + " ", "\t" + right, right + "\t", right + "\n", right + "\r\n",
		right + "\x00", "\x00" + right, right[:5] + "\x00" + right[5:],
		right + ".0", right + ".", right + "e0", right + "E0", right[:1] + "." + right[1:] + "e" + strconv.Itoa(len(right)-1),
		"0x" + strconv.FormatInt(r.c.Now.Unix(), 16), "0b1", right[:4] + "_" + right[4:],
		arabic, wide, right + "\u00a0", "NaN", "Infinity", "-Infinity", "null", "true",
		right + "," + right, right + ";", right + "Z", r.c.Now.UTC().Format(time.RFC3339), r.c.Now.UTC().Format(time.RFC1123),
		"2147483648", "4294967296", "9007199254740993", "4611686018427387904", "9223372036854775807", "9223372036854775808",
		"18446744073709551616", "253402300800", "253402300800000", "99999999999999", strings.Repeat("9", 400),
	}
}
