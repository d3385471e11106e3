package provider

import (
	"strings"

	"ichido.dev/ichido"
)

// policy is what a source accepts of what its sender sends.
type policy struct {
	events       map[string]bool
	repositories map[string]bool // in lower case
}

// newPolicy reads the allowed events and repositories of a configuration.
func newPolicy(c *Config) policy {
	var p policy
	if len(c.AllowedEvents) > 0 {
		p.events = map[string]bool{}
	}
	for _, event := range c.AllowedEvents {
		p.events[event] = true
	}
	if len(c.AllowedRepositories) > 0 {
		p.repositories = map[string]bool{}
	}
	for _, repository := range c.AllowedRepositories {
		p.repositories[strings.ToLower(repository)] = true
	}
	return p
}

// set reports whether anything is restricted.
func (p *policy) set() bool { return p.events != nil || p.repositories != nil }

// judge denies a verified event that is not allowed.
func (p *policy) judge(w *work, id *identity, proof *ichido.Proof) {
	if p.events != nil && !p.allows(w, id, proof.Type) {
		proof.Denied = "event type"
		return
	}
	if p.repositories == nil {
		return
	}
	name, state := memberText(w.view, w.member(id.repository), false)
	if state != valueFound || !printable(name, maxID) || !p.repositories[strings.ToLower(name)] {
		proof.Denied = "repository"
	}
}

// allows reports whether a type is listed, which stands for all of its
// actions, or is listed with the action that the body has.
func (p *policy) allows(w *work, id *identity, eventType string) bool {
	if p.events[eventType] {
		return true
	}
	if id.action < 0 || eventType == "" {
		return false
	}
	action, state := memberText(w.view, w.member(id.action), false)
	return state == valueFound && p.events[eventType+"."+action]
}
