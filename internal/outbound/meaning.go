package outbound

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"ichido.dev/ichido"
)

// What an answer of a destination means for an event.
const (
	delivered = iota + 1
	retry     // a failed attempt
	stop      // a dead letter at once
)

// meanings says what each status means; the first row that fits decides.
// Almost everything is tried again: a destination that is being deployed
// answers 401, 404 or 422 for minutes, and an event that is given up has to
// be replayed by hand. Only 410 is an answer that somebody chose.
var meanings = [...]struct {
	from, to, means int
	why             string
}{
	{200, 299, delivered, ""},
	{300, 399, retry, "redirects are not followed, set the final URL"},
	{401, 401, retry, "it refused the credentials or the signature"},
	{403, 403, retry, "it refused the credentials or the signature"},
	{404, 404, retry, "nothing is at the URL"},
	{405, 405, retry, "it takes no POST at the URL"},
	{408, 408, retry, "it did not read the request in time"},
	{410, 410, stop, "it wants no more events"},
	{413, 413, retry, "the body is too large for it"},
	{429, 429, retry, "too many requests"},
	{0, 999, retry, ""},
}

// meaning returns what a status means, and a few words where the number alone
// does not say what to do.
func meaning(status int) (means int, why string) {
	for _, m := range meanings {
		if m.from <= status && status <= m.to {
			return m.means, m.why
		}
	}
	return retry, ""
}

// maxDelay is the longest Retry-After that is honoured: a longer one would
// keep an event out of sight for days.
const maxDelay = 24 * time.Hour

// RetryAfter returns how long an answer's Retry-After asks to wait, at most 24
// hours; 0 when it does not, or not in a form of RFC 9110.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	seconds, err := strconv.ParseUint(text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxDelay/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxDelay)
	}
	return 0
}

// After wraps err so that the next attempt is made wait from now, or later: a
// tenth is added at most, so that events that were put off together do not come
// back together. It is not made earlier than the backoff table of the source
// would have it, for a short wait that is asked for again and again must not
// use up all attempts in a minute. A wait of 0 leaves err as it is.
func After(err error, wait time.Duration, table []time.Duration, attempt int) error {
	if wait <= 0 {
		return err
	}
	wait = min(wait+rand.N(wait/10+1), maxDelay)
	if bound := table[min(max(attempt, 1), len(table))-1]; bound > 0 {
		wait = max(wait, rand.N(bound))
	}
	return ichido.RetryAfter(err, wait)
}
