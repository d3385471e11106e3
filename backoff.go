package ichido

import (
	"math/rand/v2"
	"time"
)

// DefaultBackoff returns the default table of waits between attempts: entry
// i is the upper bound of the wait after attempt i+1, and the last entry
// holds for all later ones. The wait is drawn evenly between zero and the
// bound ("full jitter"), so that events that failed together do not come
// back together.
//
// With 12 attempts it spans at most about 52 hours, 26 on average.
func DefaultBackoff() []time.Duration {
	return []time.Duration{
		5 * time.Second,
		30 * time.Second,
		2 * time.Minute,
		10 * time.Minute,
		30 * time.Minute,
		1 * time.Hour,
		2 * time.Hour,
		4 * time.Hour,
		8 * time.Hour,
		12 * time.Hour,
		24 * time.Hour,
	}
}

// backoff returns the wait after the given attempt, from 1.
func backoff(table []time.Duration, attempt int) time.Duration {
	bound := table[min(max(attempt, 1), len(table))-1]
	if bound <= 0 {
		return 0
	}
	return rand.N(bound)
}

// notYetDelay returns the wait before a confirmation is asked for again: a
// quarter of the event's age, between five seconds and fifteen minutes, give
// or take a fifth. It needs no counter, because "not yet" is not an attempt.
func notYetDelay(age time.Duration) time.Duration {
	wait := min(max(age/4, 5*time.Second), 15*time.Minute)
	return wait - wait/5 + rand.N(2*wait/5)
}
