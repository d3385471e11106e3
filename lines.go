package ichido

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// linesEvery is how often things of one kind are logged: whoever can cause a
// line, with a body that is repeated or a destination that is down, must not be
// able to fill a disk with them.
const linesEvery = 10 * time.Second

// lines logs things that may happen very often: the first of a kind, and then
// one at a time, with how many there were since. The zero value is ready.
type lines struct {
	mu   sync.Mutex
	last map[string]*line // guarded by mu: by kind
}

type line struct {
	at    time.Time
	times int // since the last one was logged
}

// due counts a thing of a kind, and reports how many there were and whether to
// log one now.
func (l *lines) due(kind string) (times int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.last[kind]
	if k == nil {
		if l.last == nil {
			l.last = map[string]*line{}
		}
		k = &line{}
		l.last[kind] = k
	}
	k.times++
	now := time.Now()
	if now.Sub(k.at) < linesEvery {
		return 0, false
	}
	times, k.times, k.at = k.times, 0, now
	return times, true
}

// log logs what a request did, at a bounded rate.
func (in *Inbox) log(level slog.Level, msg string, args ...any) {
	if times, due := in.lines.due(msg); due {
		in.src.Log.Log(context.Background(), level, msg, append([]any{"source", in.src.Name, "times", times}, args...)...)
	}
}
