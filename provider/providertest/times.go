package providertest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"ichido.dev/ichido"
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

// groups: a time counts with the signature of its own group, and no other. A
// group that is old neither passes nor spoils one that is fresh.
func (r *runner) groups() {
	if r.c.GroupSep == "" || r.c.Tolerance == 0 {
		return
	}
	const rule, why = "groups", "the time of one group with the signature of another would let any old delivery pass"
	beside := func(first, second string) *ichido.Delivery {
		d := r.delivery()
		d.Header[r.c.Header] = []string{first + r.c.GroupSep + second}
		return d
	}
	fresh, start, end := r.span(r.delivery())
	for _, off := range []time.Duration{-r.c.Tolerance - r.c.Unit, r.c.Tolerance + r.c.Unit, -24 * time.Hour} {
		d := r.c.Sign(bytes.Clone(r.c.Body), r.c.Now.Add(off))
		old, oldStart, oldEnd := r.span(d)
		for _, pair := range [][2]string{{old, fresh}, {fresh, old}} {
			p, err := r.verify(rule, beside(pair[0], pair[1]))
			if diff := cmp.Diff(r.proof, p); err != nil || diff != "" {
				r.fail(rule, why, "a fresh group beside one signed %v apart proves something else: %v %s", off, err, diff)
			}
		}
		forgeries := []string{
			fresh[:start] + damage(fresh[start:end]) + fresh[end:],
			fresh[:start] + old[oldStart:oldEnd] + fresh[end:],
			old[:oldStart] + fresh[start:end] + old[oldEnd:],
		}
		for _, forged := range forgeries {
			for _, pair := range [][2]string{{old, forged}, {forged, old}} {
				r.refuse(rule, why, beside(pair[0], pair[1]), fmt.Sprintf("a group signed %v apart beside a forged one", off))
			}
			p, err := r.verify(rule, beside(forged, fresh))
			if diff := cmp.Diff(r.proof, p); err != nil || diff != "" {
				r.fail(rule, why, "a fresh group after a forged one proves something else: %v %s", err, diff)
			}
		}
	}
}
