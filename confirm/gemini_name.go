package confirm

import (
	"errors"
	"slices"
	"strings"
)

const (
	operations   = "operations"
	batches      = "batches"
	interactions = "interactions"
)

// resource is a checked name of something in the Gemini API. Every string in
// it is safe in a URL's path.
type resource struct {
	segments []string
	guessed  bool // the payload had only an id, and does not say of what
}

func (r resource) String() string { return strings.Join(r.segments, "/") }

// id returns the last segment.
func (r resource) id() string { return r.segments[len(r.segments)-1] }

// collection returns operations, batches or interactions.
func (r resource) collection() string { return r.segments[len(r.segments)-2] }

// parents lists what may stand before "operations/{id}".
var parents = [...]string{"models", "tunedModels", "fileSearchStores"}

// parseResource reads a full name:
//
//	operations/{id}, {parent}/{id}/operations/{id}
//	batches/{id}, interactions/{id}
func parseResource(name string) (resource, bool) {
	segments := strings.Split(name, "/")
	for _, s := range segments {
		if !validSegment(s) {
			return resource{}, false
		}
	}
	r := resource{segments: segments}
	switch len(segments) {
	case 2:
		return r, slices.Contains([]string{operations, batches, interactions}, segments[0])
	case 4:
		return r, slices.Contains(parents[:], segments[0]) && segments[2] == operations
	}
	return resource{}, false
}

func validSegment(s string) bool {
	if len(s) < 1 || len(s) > 128 || s == "." || s == ".." {
		return false
	}
	for _, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// collectionOf returns the collection that events of a type are about, "" when
// the type does not say.
func collectionOf(eventType string) string {
	family, _, _ := strings.Cut(eventType, ".")
	switch family {
	case "batch":
		return batches
	case "interaction":
		return interactions
	case "video":
		return operations
	}
	return ""
}

// findName finds what a payload names. Two members that name different things
// are refused: the handler might act on the one that was not asked for.
func findName(f *facts) (resource, error) {
	want := collectionOf(f.eventType)
	var found resource
	for _, path := range [][]string{{"operation", "name"}, {"name"}, {"data", "name"}, {"data", "id"}} {
		name := stringAt(f.payload, path...)
		r, ok := parseResource(name)
		if !ok && path[len(path)-1] == "id" && want != "" && validSegment(name) {
			// The API itself names interactions by their ids alone.
			r, ok = resource{[]string{want, name}, want != interactions}, true
		}
		switch {
		case !ok:
		case found.segments == nil:
			found = r
		case found.String() != r.String():
			return resource{}, errors.New("the payload names two different things")
		}
	}
	if found.segments == nil {
		return resource{}, errors.New("the payload names no operation, batch or interaction")
	}
	if want != "" && want != found.collection() && f.eventType != "video.generated" {
		return resource{}, errors.New("the payload names something else than its type is about")
	}
	return found, nil
}
