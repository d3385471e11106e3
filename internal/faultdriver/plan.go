package faultdriver

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Variable is the environment variable that holds the plan of a program.
const Variable = "ICHIDO_FAULT"

// Plan says what goes wrong. The zero value changes nothing.
type Plan struct {
	// Point and Hit end the process when the point is reached for the Hit-th
	// time, from 1. See [Points].
	Point string
	Hit   int64

	// AckBeforeCommit reports a commit as done and commits only when the
	// connection is used again.
	AckBeforeCommit bool

	// NoUniqueKey makes the events' table without its unique key.
	NoUniqueKey bool

	// Synchronous, when set, is the level that every connection gets, "off"
	// or "normal"; who asks is told that it is FULL.
	Synchronous string

	// Die ends the process; it must not return. Nil: SIGKILL to itself.
	Die func()
}

// Parse reads a plan: entries separated by commas, each one of
// "kill:POINT:HIT", "ack-before-commit", "no-unique-key", "synchronous=off"
// and "synchronous=normal". Empty text is the zero plan.
func Parse(text string) (Plan, error) {
	var p Plan
	for entry := range strings.SplitSeq(text, ",") {
		switch {
		case entry == "":
		case entry == "ack-before-commit":
			p.AckBeforeCommit = true
		case entry == "no-unique-key":
			p.NoUniqueKey = true
		case entry == "synchronous=off", entry == "synchronous=normal":
			p.Synchronous = strings.TrimPrefix(entry, "synchronous=")
		case strings.HasPrefix(entry, "kill:"):
			if err := p.parseKill(entry); err != nil {
				return Plan{}, err
			}
		default:
			return Plan{}, fmt.Errorf("read fault plan: there is no fault %q", entry)
		}
	}
	return p, nil
}

func (p *Plan) parseKill(entry string) error {
	parts := strings.Split(entry, ":")
	if len(parts) != 3 || !slices.Contains(Points(), parts[1]) {
		return fmt.Errorf("read fault plan: %q names no point: write kill:POINT:HIT", entry)
	}
	hit, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || hit < 1 {
		return fmt.Errorf("read fault plan: the hit in %q must be a number from 1", entry)
	}
	p.Point, p.Hit = parts[1], hit
	return nil
}

// die ends the process as a kill from outside would: no deferred call, no
// flush, no exit handler runs.
func (p *Plan) die() {
	if p.Die != nil {
		p.Die()
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // nothing may happen until the signal arrives
}
