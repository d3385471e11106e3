package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// syntaxErrors says what the parser's messages mean, and what to do. The
// first row of which a part is in the message counts. The messages themselves
// are not shown: they may hold text of the file.
var syntaxErrors = []struct{ part, message, cure string }{
	{"tab", "a tab stands where YAML expects spaces", "indent with spaces only"},
	{"\t", "a tab stands where YAML expects spaces", "indent with spaces only"},
	{"-quoted text", "a quote is opened and not closed", "close the value with the quote that opens it, on the same line"},
	{"non-map value", "is not a setting with a value", `write "name: value" with a space after the colon, and indent the line like its neighbours`},
	{"pre-defined", "something stands after the value, or a bracket is not closed", "close every [ with ] and every { with }, and put a comma between values"},
	{"mapping value is not allowed", "a second colon stands where the value should end", "put the value in quotes, or begin a new line"},
	{"not allowed in this context", "the line is not indented like its neighbours", "indent it with as many spaces as the settings beside it"},
	{"reserved character", "the value begins with a character that means something in YAML", "put the value in quotes"},
	{"corresponding to", "a bracket is closed and not opened", "remove it, or open it before"},
	{"flow map", "a bracket is opened and not closed", "close every [ with ] and every { with }"},
	{"sequence end", "a bracket is opened and not closed", "close every [ with ] and every { with }"},
	{"sequence", "a list item stands where there can be none", `write the items below the name of their setting, each after "- ", with the same indentation`},
	{"delimiter ':'", "is not a setting with a value", `write "name: value" with a space after the colon`},
	{"", "is not valid YAML", "look at the indentation (spaces only), the quotes and the brackets of this line and of the one above"},
}

var defined = regexp.MustCompile(`already defined at \[(\d+):`)

// syntax records an error of the YAML parser at its place.
func (d *decoder) syntax(err error) {
	var y yaml.Error
	if !errors.As(err, &y) {
		d.add("", "the file is not YAML", syntaxErrors[len(syntaxErrors)-1].cure)
		return
	}
	if at := defined.FindStringSubmatch(y.GetMessage()); at != nil {
		name := "a setting"
		if t := y.GetToken(); t != nil && shownKey(t.Value, true) {
			name = t.Value
		}
		d.at(y.GetToken(), "", name+" is written twice", fmt.Sprintf("keep this one or the one in line %s", at[1]))
		return
	}
	if line := d.lineOf(y.GetToken()); strings.HasPrefix(strings.TrimSpace(line), "- ") && strings.Contains(y.GetMessage(), "non-map value") {
		d.at(y.GetToken(), "", "the list item is not indented like its neighbours", `begin each "- " of the list in the same column, with spaces`)
		return
	}
	for _, e := range syntaxErrors {
		if strings.Contains(y.GetMessage(), e.part) {
			d.at(y.GetToken(), "", e.message, e.cure)
			return
		}
	}
}

// lineOf returns the line that a token is in.
func (d *decoder) lineOf(t *token.Token) string {
	if t == nil || t.Position == nil || t.Position.Line < 1 || t.Position.Line > len(d.lines) {
		return ""
	}
	return d.lines[t.Position.Line-1]
}
