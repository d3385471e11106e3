package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a configuration file, bytes.
const maxFile = 1 << 20

// decoder fills a Config from a YAML tree and collects what is wrong on the
// way, instead of stopping at the first error.
type decoder struct {
	lines    []string
	places   map[string]*token.Position // where each path stands
	problems Problems

	placeless bool              // nobody wrote the text
	faulty    []string          // paths of problems, as they are in the configuration
	misspelt  map[string]bool   // paths of settings whose name is nearly right
	concealed []string          // what no message may show
	variables map[string]string // of a configuration from the environment: the variable of a path
}

// parse returns the decoded configuration, before defaults.
func parse(data []byte) (*Config, *decoder) {
	d := &decoder{lines: strings.Split(string(data), "\n"), places: map[string]*token.Position{}, misspelt: map[string]bool{}}
	c := &Config{}
	if len(data) > maxFile {
		d.add("", fmt.Sprintf("the file is larger than %d bytes", maxFile), "split it, or check that it is the right file")
		return c, d
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		d.syntax(err)
		return c, d
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			d.at(doc.Body.GetToken(), "", "the file holds several documents", "keep one and remove the --- lines")
			return c, d
		}
		body = doc.Body
	}
	if body == nil {
		d.add("", "the file is empty", "add at least one source, or run without a file")
		return c, d
	}
	d.remember(body, "", false)
	d.value(body, reflect.ValueOf(c).Elem(), "")
	return c, d
}

// problem returns a problem without its place.
func (d *decoder) problem(path, message, cure string) Problem {
	d.faulty = append(d.faulty, path)
	if variable := d.variables[path]; variable != "" {
		path = variable
	}
	if cure == "" {
		cure = "docs/configuration.md says what may stand here"
	}
	return Problem{Path: d.hide(path), Message: d.hide(message), Cure: d.hide(cure)}
}

// at records a problem at a token.
func (d *decoder) at(t *token.Token, path, message, cure string) {
	p := d.problem(path, message, cure)
	if t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
		p.Excerpt = excerpt(d.lines, p.Line, p.Column)
	}
	d.problems = append(d.problems, p)
}

// add records a problem at the place of a path, or of the nearest path around
// it that is in the file.
func (d *decoder) add(path, message, cure string) {
	p := d.problem(path, message, cure)
	for around := path; around != "" && !d.placeless; around = parent(around) {
		if pos := d.places[around]; pos != nil {
			p.Line, p.Column = pos.Line, pos.Column
			p.Excerpt = excerpt(d.lines, p.Line, p.Column)
			break
		}
	}
	d.problems = append(d.problems, p)
}

// forgetPlaces makes problems, the ones so far and later ones, name no place
// in a text.
func (d *decoder) forgetPlaces() {
	d.placeless = true
	for i := range d.problems {
		d.problems[i].Line, d.problems[i].Column, d.problems[i].Excerpt = 0, 0, ""
	}
}

// parent returns the path that holds path: "a.b[1]" gives "a.b", then "a".
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value decodes a node into v.
func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	n = plain(n)
	if t := n.GetToken(); t != nil && d.places[path] == nil {
		d.places[path] = t.Position
	}
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		d.at(n.GetToken(), path, "anchors and aliases are not accepted", "write the value out")
		return
	case *ast.TagNode:
		d.at(n.GetToken(), path, "tags are not accepted", "remove it")
		return
	case *ast.NullNode:
		d.at(n.GetToken(), path, "has no value", "give it one, or remove the line")
		return
	}
	_, isMapping := mapping(n)
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case v.Addr().Type().Implements(textUnmarshaler) && !(isMapping && v.Type() == reflect.TypeFor[Secret]()):
		d.text(n, v, path)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, path)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path)
	case v.Kind() == reflect.Map:
		d.dictionary(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// plain returns the text that a list like [env:NAME] holds: without a space
// after its colon it is one word, although the parser takes it for a mapping.
func plain(n ast.Node) ast.Node {
	entries, _ := mapping(n)
	if len(entries) != 1 || entries[0].Value == nil {
		return n
	}
	entry := entries[0]
	key, value := entry.Key.GetToken(), entry.Value.GetToken()
	if _, scalar := entry.Value.(ast.ScalarNode); !scalar || value.Position.Line != key.Position.Line ||
		value.Position.Column != key.Position.Column+len(key.Value)+1 {
		return n
	}
	text := key.Value + ":" + value.Value
	return ast.String(token.String(text, text, key.Position))
}

// mapping returns the entries of a mapping node.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// structure decodes a mapping whose keys are known.
func (d *decoder) structure(n ast.Node, v reflect.Value, path string) {
	entries, ok := mapping(n)
	if !ok {
		d.at(n.GetToken(), path, "must be a mapping of settings", "write its settings below it, indented")
		return
	}
	fields := map[string]reflect.Value{}
	var names []string
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		fields[name], names = v.Field(i), append(names, name)
	}
	for _, entry := range entries {
		key := entry.Key.GetToken()
		field, known := fields[key.Value]
		if !known {
			d.unknown(key, path, names, v.Type() == reflect.TypeFor[Secret]())
			continue
		}
		d.places[join(path, key.Value)] = key.Position
		d.value(entry.Value, field, join(path, key.Value))
	}
}

// unknown records a setting that is not there. Where a secret was expected,
// the name may be one, and is shown only if it is nearly a setting's.
func (d *decoder) unknown(key *token.Token, path string, names []string, secret bool) {
	name := clean(key.Value)
	cure := "remove it; known here: " + strings.Join(names, ", ")
	near := Nearest(name, names)
	switch {
	case near != "":
		cure = fmt.Sprintf("did you mean %q?", near)
		d.misspelt[join(path, near)] = true
	case secret:
		d.at(key, path, "unknown setting", cure)
		return
	}
	d.at(key, join(path, name), fmt.Sprintf("unknown setting %q", name), cure)
}

// dictionary decodes a mapping whose keys are free.
func (d *decoder) dictionary(n ast.Node, v reflect.Value, path string) {
	entries, ok := mapping(n)
	if !ok {
		d.at(n.GetToken(), path, "must be a mapping of names to values", "write NAME: VALUE lines below it, indented")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, entry := range entries {
		key := entry.Key.GetToken().Value
		d.places[join(path, key)] = entry.Key.GetToken().Position
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(entry.Value, element, join(path, key))
		v.SetMapIndex(reflect.ValueOf(key), element)
	}
}

// sequence decodes a list.
func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.at(n.GetToken(), path, "must be a list", "write [VALUE], or each value on its own line after '- '")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, element := range list.Values {
		d.value(element, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// text decodes a scalar by its type's own rules.
func (d *decoder) text(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(ast.ScalarNode)
	if !ok {
		d.at(n.GetToken(), path, "must be a single value", "write it on the same line")
		return
	}
	if d.goesOn(n, path) {
		return
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(scalarText(s))); err != nil {
		message, cure, _ := strings.Cut(err.Error(), "; ")
		d.at(n.GetToken(), path, message, cure)
	}
}

// scalar decodes text, whole numbers and truth values.
func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		if d.goesOn(n, path) {
			return
		}
		switch s := n.(type) {
		case *ast.StringNode, *ast.LiteralNode:
			v.SetString(scalarText(s.(ast.ScalarNode)))
		default:
			d.at(n.GetToken(), path, "must be text", "put it in quotes")
		}
	case reflect.Int:
		i, err := strconv.ParseUint(n.GetToken().Value, 10, 31)
		if _, isInt := n.(*ast.IntegerNode); !isInt || err != nil {
			d.at(n.GetToken(), path, "must be a whole number, not negative", "write for example 100")
			return
		}
		v.SetInt(int64(i))
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.at(n.GetToken(), path, "must be true or false", "write true or false")
			return
		}
		v.SetBool(b.Value)
	default:
		panic("config: no rule for " + v.Type().String())
	}
}

// goesOn records a value without quotes that goes on in the next line: a list
// item that is indented too far is read as the end of the one before.
func (d *decoder) goesOn(n ast.Node, path string) bool {
	t := n.GetToken()
	if s, ok := n.(*ast.StringNode); !ok || s.Token.Type != token.StringType || !strings.Contains(strings.TrimSpace(t.Origin), "\n") {
		return false
	}
	d.at(t, path, "goes on in the next line", "write it on one line, and indent the next line like its neighbours")
	return true
}

// scalarText returns a scalar as written, without quotes.
func scalarText(s ast.ScalarNode) string {
	if literal, ok := s.(*ast.LiteralNode); ok {
		return literal.Value.Value
	}
	return s.GetToken().Value
}

// clean makes a key fit for a message.
func clean(key string) string {
	runes := []rune(key)
	runes = runes[:min(len(runes), 40)]
	return strings.Map(func(r rune) rune {
		if slices.Contains([]rune{'\n', '\r', '\t', 0x1b}, r) || r < ' ' {
			return '?'
		}
		return r
	}, string(runes))
}
