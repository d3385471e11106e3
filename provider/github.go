package provider

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"ichido.dev/ichido"
)

//go:generate go run ../internal/gen/githubfields -out githubfields.txt

const requiredFieldsGitHub = "github"

// githubFieldsText is made from a published schema: a line per event and
// action with the members that its bodies must have.
//
//go:embed githubfields.txt
var githubFieldsText string

// githubFields reads the embedded table once.
var githubFields = sync.OnceValues(func() (*fieldTable, error) { return parseFields(githubFieldsText) })

// fieldTable says which members the body of an event type must have. GitHub
// signs the body, not the type: a captured body must not be handled as
// another type only because a header says so.
type fieldTable struct {
	events map[string]*eventFields
}

// eventFields are the required members of one event.
type eventFields struct {
	plain   *envelope            // of an event without actions
	actions map[string]*envelope // by action
	common  *envelope            // those that all actions have, for new ones
}

// parseFields reads lines of the form "event action path path ...", with "-"
// for no action.
func parseFields(text string) (*fieldTable, error) {
	t := &fieldTable{events: map[string]*eventFields{}}
	common := map[string]map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("required fields: line %q is not an event, an action and members", strings.TrimSpace(line))
		}
		name, action := words[0], words[1]
		e := t.events[name]
		if e == nil {
			e = &eventFields{actions: map[string]*envelope{}}
			t.events[name], common[name] = e, map[string]int{}
		}
		if action == "-" {
			e.plain = fieldEnvelope(words[2:])
			continue
		}
		e.actions[action] = fieldEnvelope(words[2:])
		for _, path := range words[2:] {
			common[name][path]++
		}
	}
	if len(t.events) == 0 {
		return nil, errors.New("required fields: the table is empty")
	}
	for name, e := range t.events {
		var paths []string
		for path, n := range common[name] {
			if n == len(e.actions) {
				paths = append(paths, path)
			}
		}
		e.common = fieldEnvelope(paths)
	}
	return t, nil
}

func fieldEnvelope(names []string) *envelope {
	var paths [][]string
	for _, name := range names {
		paths = append(paths, strings.Split(name, "."))
	}
	return newEnvelope(paths)
}

var actionEnvelope = newEnvelope([][]string{{"action"}})

// check refuses a body that lacks what events of its type have. A type that
// the table does not know has no required members.
func (t *fieldTable) check(w *work, eventType string, view []byte) error {
	name, wanted, hasWanted := strings.Cut(eventType, ".")
	e := t.events[name]
	if e == nil {
		return nil
	}
	var found [1]member
	if actionEnvelope.read(&w.scanner, view, found[:]) != envelopeObject {
		return notAllowed("the body is not an object")
	}
	action, state := memberText(view, found[0], false)
	if hasWanted && (state != valueFound || action != wanted) {
		return notAllowed("the body has another action")
	}
	required := e.plain
	if required == nil {
		if state != valueFound {
			return notAllowed("the body has no action")
		}
		if required = e.actions[action]; required == nil {
			required = e.common
		}
	}
	members := make([]member, required.paths)
	required.read(&w.scanner, view, members)
	for _, m := range members {
		if m.state != memberFound {
			return notAllowed("a member that events of this type have is missing")
		}
	}
	return nil
}

func notAllowed(cause string) error {
	return &ichido.Error{Code: ichido.CodeNotAllowed, Op: "inspect", Cause: cause}
}
