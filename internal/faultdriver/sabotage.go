package faultdriver

import (
	"database/sql/driver"
	"io"
	"regexp"
	"strings"
)

// full is PRAGMA synchronous as a store that keeps its promise has it.
const full = 2

var (
	uniqueHash = regexp.MustCompile(`(?m)^(\s*hash\s[^\n]*?) UNIQUE`)
	doNothing  = regexp.MustCompile(` ON CONFLICT \(hash\) DO NOTHING`)
	setLevel   = regexp.MustCompile(`(?i)^\s*PRAGMA\s+synchronous\s*=\s*\w+`)
	getLevel   = regexp.MustCompile(`(?i)^\s*PRAGMA\s+synchronous\s*;?\s*$`)
)

// rewrite returns a statement with the plan's sabotage in it.
func (p *Plan) rewrite(text string) string {
	if p.NoUniqueKey {
		if strings.Contains(text, "CREATE TABLE ichido_events") {
			text = uniqueHash.ReplaceAllString(text, "$1")
		}
		text = doNothing.ReplaceAllString(text, "")
	}
	if p.Synchronous != "" {
		text = setLevel.ReplaceAllString(text, "PRAGMA synchronous = "+p.Synchronous)
	}
	return text
}

// lie returns the answer that hides a sabotage, nil where there is nothing to
// hide.
func (p *Plan) lie(text string) driver.Rows {
	if p.Synchronous == "" || !getLevel.MatchString(text) {
		return nil
	}
	return &oneRow{column: "synchronous", value: full}
}

// oneRow is a result of one number.
type oneRow struct {
	column string
	value  int64
	read   bool
}

func (r *oneRow) Columns() []string { return []string{r.column} }
func (r *oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, r.value
	return nil
}
