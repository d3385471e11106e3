package gateway

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ichido.dev/ichido"
)

// observer counts what happens to deliveries and events, and logs refusals at
// a bounded rate: a flood of bad signatures must not become a flood of lines.
type observer struct {
	log      *slog.Logger
	counted  *prometheus.CounterVec // source, what, cause
	mu       sync.Mutex
	causes   map[string]bool      // guarded by mu: causes that have a label
	lastLine map[string]time.Time // guarded by mu: when a kind of refusal was last logged
	silent   map[string]int       // guarded by mu: how many since
}

const (
	maxCauses    = 256         // labels for causes; what comes later is "other"
	refusalEvery = time.Second // one line per kind of refusal
)

func newObserver(log *slog.Logger, registry prometheus.Registerer) *observer {
	o := &observer{
		log: log,
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ichido_total",
			Help: "Deliveries and events by source, what happened to them, and why.",
		}, []string{"source", "what", "cause"}),
		causes:   map[string]bool{},
		lastLine: map[string]time.Time{},
		silent:   map[string]int{},
	}
	registry.MustRegister(o.counted)
	return o
}

// of returns the Observe function of a source. The counters of what happens
// to every good delivery are looked up once.
func (o *observer) of(source string) func(what, cause string) {
	accepted := o.counted.WithLabelValues(source, "accepted", "")
	return func(what, cause string) {
		if what == "accepted" {
			accepted.Inc()
			return
		}
		o.counted.WithLabelValues(source, what, o.label(cause)).Inc()
		if refusal(what) {
			o.line(source, what, cause)
		}
	}
}

// label returns a cause as a metric label: its enumerated words, without what
// varies (a clock's skew in seconds).
func (o *observer) label(cause string) string {
	if i := strings.IndexAny(cause, ":0123456789"); i >= 0 {
		cause = strings.TrimSpace(cause[:i])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.causes[cause] {
		if len(o.causes) >= maxCauses {
			return "other"
		}
		o.causes[cause] = true
	}
	return cause
}

// refusal reports whether what is the code of a refused delivery.
func refusal(what string) bool {
	switch what {
	case ichido.CodeSignature, ichido.CodeTooLarge, ichido.CodeIncomplete, ichido.CodeTimeout, ichido.CodeEncoding,
		ichido.CodeMethod, ichido.CodeRateLimited, ichido.CodeOverloaded, ichido.CodeNotAllowed, ichido.CodeFull,
		ichido.CodeUnavailable, ichido.CodeUnreadable, ichido.CodeConflict:
		return true
	}
	return false
}

// line logs a refusal, at most one of a kind per second, with the number of
// those that were left out.
func (o *observer) line(source, what, cause string) {
	kind := source + " " + what
	now := time.Now()
	o.mu.Lock()
	if now.Sub(o.lastLine[kind]) < refusalEvery {
		o.silent[kind]++
		o.mu.Unlock()
		return
	}
	silent := o.silent[kind]
	o.lastLine[kind], o.silent[kind] = now, 0
	o.mu.Unlock()
	attrs := []any{"source", source, "code", what, "cause", cause}
	if silent > 0 {
		attrs = append(attrs, "more_since_last_line", silent)
	}
	o.log.Warn("refused a delivery", attrs...)
}
