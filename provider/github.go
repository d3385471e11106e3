package provider

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
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

// eventFields are the required members of one event, as slots of one
// envelope, so that a body is read once.
type eventFields struct {
	members *envelope
	paths   []string         // of the slots; the first is the action
	plain   []int            // of an event without actions
	actions map[string][]int // by action
	common  []int            // those that all actions have, for new ones
}

// slots returns the slots of members, adding those that are new.
func (e *eventFields) slots(paths []string) []int {
	slots := make([]int, len(paths))
	for i, path := range paths {
		if slots[i] = slices.Index(e.paths, path); slots[i] < 0 {
			slots[i] = len(e.paths)
			e.paths = append(e.paths, path)
		}
	}
	return slots
}

// parseFields reads lines of the form "event action path path ...", with "-"
// for no action.
func parseFields(text string) (*fieldTable, error) {
	t := &fieldTable{events: map[string]*eventFields{}}
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
			e = &eventFields{paths: []string{"action"}, actions: map[string][]int{}}
			t.events[name] = e
		}
		slots := e.slots(words[2:])
		if action == "-" {
			e.plain = slots
			continue
		}
		if len(e.actions) == 0 {
			e.common = slots
		}
		e.actions[action] = slots
		e.common = slices.DeleteFunc(slices.Clone(e.common), func(slot int) bool { return !slices.Contains(slots, slot) })
	}
	if len(t.events) == 0 {
		return nil, errors.New("required fields: the table is empty")
	}
	for _, e := range t.events {
		var paths [][]string
		for _, path := range e.paths {
			paths = append(paths, strings.Split(path, "."))
		}
		e.members = newEnvelope(paths)
	}
	return t, nil
}

// check refuses a body that is not strict JSON, or lacks what events of its
// type have. It reports false for a type that the table does not know: that
// one has no required members, and was not read.
func (t *fieldTable) check(w *work, eventType string, view []byte) (known bool, err error) {
	e := t.events[eventType]
	if e == nil {
		return false, nil
	}
	w.required = slices.Grow(w.required[:0], len(e.paths))[:len(e.paths)]
	switch e.members.readStrictly(&w.scanner, view, w.required) {
	case envelopeInvalid:
		return true, unreadable("not strict JSON")
	case envelopeOther:
		return true, notAllowed("the body is not an object")
	}
	action, state := memberText(view, w.required[0], false)
	required := e.plain
	if required == nil {
		if state != valueFound {
			return true, notAllowed("the body has no action")
		}
		var listed bool
		if required, listed = e.actions[action]; !listed {
			required = e.common
		}
	}
	for _, slot := range required {
		if w.required[slot].state != memberFound {
			return true, notAllowed("a member that events of this type have is missing")
		}
	}
	return true, nil
}

func notAllowed(cause string) error {
	return &ichido.Error{Code: ichido.CodeNotAllowed, Op: "inspect", Cause: cause}
}
