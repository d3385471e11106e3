package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration, with its place and
// its cure. It never holds a secret.
type Problem struct {
	Line    int    `json:"line,omitempty"`   // from 1; 0 where the file has no such place
	Column  int    `json:"column,omitempty"` // from 1, in bytes
	Path    string `json:"path,omitempty"`   // for example sources[0].provider
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"`
	Excerpt string `json:"-"` // the line and a caret, secrets replaced
}

// String returns "line:column: path: message; cure".
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Message)
	if p.Cure != "" {
		b.WriteString("; " + p.Cure)
	}
	return b.String()
}

// Problems is every problem of a configuration, in the order of the file. It
// is an error when it is not empty.
type Problems []Problem

// Error returns one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the problems by their place in the file.
func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p
}

// Nearest returns the candidate closest to name by spelling, "" when none is
// near.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", min(3, len(name)) // of a letter or two nothing is left
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of edits between two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			previous, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, previous+cost)
		}
	}
	return row[len(b)]
}
