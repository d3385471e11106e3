package main

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// digest is the SHA-256 of a body.
type digest = [sha256.Size]byte

// event is what the oracle knows of one event that it made.
type event struct {
	source    *source
	n         int
	variant   string // "" for the first body of an id
	hash      [hashedLength]byte
	body      digest
	acked     bool // a 2xx was seen, or 409 for a conflict: its bytes must be there
	stored    bool // its row was seen
	conflict  bool // another body for the id of an acknowledged event
	forwarded int  // highest attempt seen at the destination
	applied   bool // the destination took it
	inFlight  int  // incarnation+1 of the process whose forward is being answered
}

// oracle is the outside observer: it makes the events, writes what was sent
// and answered to a log of its own, and says what must be true. It is safe
// for concurrent use.
type oracle struct {
	seed    uint64
	sources []source
	log     *journal

	mu          sync.Mutex
	rng         *rand.Rand // guarded by mu, like everything below
	events      []*event
	byHash      map[[hashedLength]byte]*event
	forged      map[digest]bool
	unanswered  []*event
	acked       int // events with a 2xx
	duplicates  int
	conflicts   int
	refused     int // 503
	forgeries   int
	forwards    int
	incarnation int
	violations  []string
}

func newOracle(seed uint64, sources []source, log *journal) *oracle {
	return &oracle{
		seed: seed, sources: sources, log: log, rng: rand.New(rand.NewPCG(seed, 1)),
		byHash: map[[hashedLength]byte]*event{}, forged: map[digest]bool{},
	}
}

// begin starts the count for a process that was started.
func (o *oracle) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.incarnation++
}

// failed returns the violations.
func (o *oracle) failed() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.violations)
}

// nextUnanswered returns an event that nobody has answered yet, nil when there
// is none.
func (o *oracle) nextUnanswered() *event {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.unanswered) == 0 {
		return nil
	}
	return o.takeUnanswered()
}

// violate records that an invariant does not hold.
func (o *oracle) violate(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violateLocked(format, args...)
}

func (o *oracle) violateLocked(format string, args ...any) {
	const enough = 20
	if len(o.violations) < enough {
		o.violations = append(o.violations, fmt.Sprintf(format, args...))
	}
}

// What a sender does next.
type action int

const (
	sendNew action = iota
	sendAgain
	sendConflict
	sendForged
)

// next decides what to send: mostly new events, some that were answered or
// not answered before, a few conflicts and forgeries. With more false it
// makes no new events.
func (o *oracle) next(more bool) (action, *event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	roll := o.rng.IntN(100)
	switch {
	case roll < 20 && len(o.unanswered) > 0:
		return sendAgain, o.takeUnanswered()
	case roll < 30 && o.acked > 0 || !more && len(o.events) > 0:
		if e := o.events[o.rng.IntN(len(o.events))]; e.acked {
			return sendAgain, e
		}
	case roll < 32:
		if e := o.pickForConflict(); e != nil {
			return sendConflict, o.addLocked(e.source, e.n, fmt.Sprintf("conflict-%d", len(o.events)))
		}
	case roll < 35:
		return sendForged, o.forge()
	}
	if !more {
		return sendForged, o.forge()
	}
	return sendNew, o.addLocked(&o.sources[o.rng.IntN(len(o.sources))], len(o.events), "")
}

func (o *oracle) takeUnanswered() *event {
	i := o.rng.IntN(len(o.unanswered))
	e := o.unanswered[i]
	last := len(o.unanswered) - 1
	o.unanswered[i] = o.unanswered[last]
	o.unanswered = o.unanswered[:last]
	return e
}

// pickForConflict returns an acknowledged event whose sender signs an id.
func (o *oracle) pickForConflict() *event {
	for range 8 {
		if len(o.events) == 0 {
			return nil
		}
		if e := o.events[o.rng.IntN(len(o.events))]; e.acked && e.source.hasID && !e.conflict {
			return e
		}
	}
	return nil
}

// addLocked makes an event, or with a variant another body for event n.
func (o *oracle) addLocked(s *source, n int, variant string) *event {
	body := bodyOf(o.seed, n, variant)
	e := &event{source: s, n: n, variant: variant, body: sha256.Sum256(body), conflict: variant != ""}
	if e.conflict {
		e.hash = hashOf(s, quarantine, string(e.body[:]))
	} else {
		e.hash = hashOf(s, anEvent, s.key(idOf(o.seed, n), body))
	}
	o.events = append(o.events, e)
	o.byHash[e.hash] = e
	return e
}

// forge returns an event that is not among those that may be stored.
func (o *oracle) forge() *event {
	o.forgeries++
	s := &o.sources[o.rng.IntN(len(o.sources))]
	variant := fmt.Sprintf("forged-%d", o.forgeries)
	body := bodyOf(o.seed, o.forgeries, variant)
	e := &event{source: s, n: o.forgeries, variant: variant, body: sha256.Sum256(body)}
	o.forged[e.body] = true
	return e
}

// answered records the answer to an event; status 0 is none.
func (o *oracle) answered(e *event, do action, status int, duplicate bool, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case do == sendForged:
		if status != 401 && status != 0 && status != 503 {
			o.violateLocked("I3: a forged delivery to %s was answered %d", e.source.name, status)
		}
	case status == 0 || status == 503:
		if status == 503 {
			o.refused++
		}
		if !e.acked {
			o.unanswered = append(o.unanswered, e)
		}
	case e.conflict:
		if status != 409 {
			o.violateLocked("I6: a conflict for event %d was answered %d", e.n, status)
		}
		if !e.acked {
			e.acked = true
			o.conflicts++
		}
	case status/100 != 2:
		o.violateLocked("an event of %s was answered %d", e.source.name, status)
	default:
		o.acknowledged(e, duplicate, id)
	}
}

func (o *oracle) acknowledged(e *event, duplicate bool, id string) {
	if id != "" && id != eventID(e.hash) {
		o.violateLocked("I6: event %d of %s was answered with id %s, not %s", e.n, e.source.name, id, eventID(e.hash))
	}
	if e.acked && !duplicate {
		o.violateLocked("I6: event %d of %s was accepted twice", e.n, e.source.name)
	}
	if duplicate {
		o.duplicates++
	}
	if !e.acked {
		e.acked = true
		o.acked++
	}
}
