package faultdriver

import "regexp"

// kind is what a statement does.
type kind string

const (
	begin    kind = "begin"
	commit   kind = "commit"
	rollback kind = "rollback"
	other    kind = ""
)

// statements tells kinds by their words; the first row that fits decides.
var statements = []struct {
	kind  kind
	words *regexp.Regexp
}{
	{begin, regexp.MustCompile(`^BEGIN`)},
	{commit, regexp.MustCompile(`^COMMIT`)},
	{rollback, regexp.MustCompile(`^ROLLBACK`)},
	{"migrate", regexp.MustCompile(`^(--[^\n]*\s+)*CREATE (TABLE|INDEX)`)},
	{"checkpoint", regexp.MustCompile(`^PRAGMA wal_checkpoint`)},
	{"insert-event", regexp.MustCompile(`^INSERT INTO ichido_events`)},
	{"insert-body", regexp.MustCompile(`^INSERT INTO ichido_bodies`)},
	{"purge-body", regexp.MustCompile(`^DELETE FROM ichido_bodies`)},
	{"purge-event", regexp.MustCompile(`^DELETE FROM ichido_events`)},
	{"purge-mark", regexp.MustCompile(`^UPDATE ichido_events SET purged = 1`)},
	{"count", regexp.MustCompile(`^UPDATE ichido_meta`)},
	{"keep", regexp.MustCompile(`^UPDATE ichido_events SET .*settled_at = due`)},
	{"copy", regexp.MustCompile(`^UPDATE ichido_events SET copies`)},
	{"release", regexp.MustCompile(`^UPDATE (OR ROLLBACK )?ichido_events SET state = 0, `)},
	{"claim", regexp.MustCompile(`^UPDATE (OR ROLLBACK )?ichido_events SET state = 1, .*attempts = attempts \+ 1`)},
	{"extend", regexp.MustCompile(`^UPDATE (OR ROLLBACK )?ichido_events SET state = 1, `)},
	{"settle", regexp.MustCompile(`^UPDATE (OR ROLLBACK )?ichido_events SET state = \?`)},
	{"choose", regexp.MustCompile(`^SELECT .* FROM ichido_events INDEXED BY`)},
	{"find", regexp.MustCompile(`^SELECT seq, fingerprint FROM ichido_events`)},
	{"effect", regexp.MustCompile(`^(INSERT INTO|UPDATE) (ledger|applied)`)},
}

// kindOf returns what a statement does, or other.
func kindOf(text string) kind {
	for _, s := range statements {
		if s.words.MatchString(text) {
			return s.kind
		}
	}
	return other
}

// groups are the kinds whose commit is a point of its own: "before-commit" is
// any commit, "before-commit+claim" one of a transaction that claimed.
var groups = []kind{"migrate", "insert-body", "purge-body", "copy", "release", "claim", "extend", "settle", "effect", "keep"}

// Points returns the names of all points.
func Points() []string {
	var names []string
	for _, s := range statements {
		names = append(names, "before-"+string(s.kind), "after-"+string(s.kind))
	}
	for _, g := range groups {
		names = append(names, "before-commit+"+string(g), "after-commit+"+string(g))
	}
	return names
}
