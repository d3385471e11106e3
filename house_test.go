package ichido_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "ichido.dev/ichido"

// mayImport says what each package may import beyond the standard library.
// A package that is not listed may import nothing; the longest prefix counts.
// It parses files instead of asking the go command, so that it is never
// answered from a cache.
var mayImport = map[string][]string{
	".":                     {"internal/placeholder"},
	"provider":              {".", "internal/placeholder", "internal/loopback", "github.com/go-json-experiment/json", "github.com/goccy/go-yaml", "github.com/go-jose/go-jose/v4"},
	"provider/internal":     {".", "provider", "github.com/go-json-experiment/json", "github.com/goccy/go-yaml"},
	"provider/providertest": {".", "github.com/google/go-cmp"},
	"confirm":               {".", "internal/outbound", "internal/loopback", "github.com/expr-lang/expr", "github.com/go-json-experiment/json"},
	"store/internal/rule":   {"."},
	"store/memory":          {".", "store/internal/rule"},
	"store/sqlite":          {".", "internal/flush", "internal/migrate", "store/internal/rule"},
	"store/storetest":       {".", "store/memory", "pgregory.net/rapid", "github.com/google/go-cmp"},
	"internal/migrate":      {},
	"internal/flush":        {},
	"internal/placeholder":  {},
	"internal/loopback":     {},
	"internal/config":       {"internal/placeholder", "internal/loopback", "github.com/goccy/go-yaml"},
	"internal/view":         {"."},
	"internal/outbound":     {".", "internal/loopback", "code.dny.dev/ssrf"},
	"internal/standin":      {},
	"internal/gen":          {".", "provider", "github.com/go-json-experiment/json", "github.com/goccy/go-yaml"},
	"internal/gateway": {
		".", "provider", "confirm", "internal/config", "internal/outbound", "internal/loopback", "internal/view",
		"github.com/prometheus/client_golang", "golang.org/x/time",
	},
	"internal/cli": {
		".", "provider", "store/sqlite", "store/memory", "internal/config", "internal/gateway", "internal/view", "internal/demo", "internal/bench",
		"internal/outbound", "internal/loopback", "internal/flush", "github.com/spf13/cobra", "golang.org/x/term", "github.com/lmittmann/tint",
	},
	"internal/demo":        {".", "provider", "store/sqlite", "internal/config", "internal/gateway", "internal/standin", "internal/view"},
	"internal/bench":       {".", "provider", "store/sqlite", "internal/config", "internal/gateway"},
	"examples":             {".", "provider", "confirm", "store/sqlite", "store/memory", "modernc.org/sqlite"},
	"conformance":          {},
	"cmd/ichido":           {"internal/cli", "internal/faultdriver", "modernc.org/sqlite"},
	"internal/faultdriver": {},
}

// testsMayImport is what every test may import besides.
var testsMayImport = []string{
	".", "provider", "confirm", "store", "internal", "github.com/google/go-cmp", "pgregory.net/rapid", "modernc.org/sqlite",
	"github.com/rogpeppe/go-internal", "github.com/go-json-experiment/json", "github.com/go-jose/go-jose/v4", "github.com/goccy/go-yaml",
}

// onlyTests are packages for tests: nothing else may import them.
var onlyTests = []string{module + "/store/storetest", module + "/provider/providertest"}

// source is one parsed file of the module.
type source struct {
	path, dir string
	isTest    bool
	set       *token.FileSet
	file      *ast.File
	lines     int
}

// sources parses every Go file of the module, without nested modules.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			nested, _ := filepath.Glob(filepath.Join(p, "go.mod"))
			if p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || len(nested) > 0) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{
			path: filepath.ToSlash(p), dir: path.Dir(filepath.ToSlash(p)), isTest: strings.HasSuffix(p, "_test.go"),
			set: set, file: file, lines: set.File(file.Pos()).LineCount(),
		})
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("parse the module: %d files, %v", len(all), err)
	}
	return all
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, s := range sources(t) {
		allowed := slices.Clone(allowedFor(s.dir))
		if s.isTest {
			allowed = append(allowed, testsMayImport...)
		}
		for _, spec := range s.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(onlyTests, imported) && !s.isTest && !strings.HasPrefix(module+"/"+s.dir, imported) {
				t.Errorf("%s imports %s, which is for tests", s.path, imported)
				continue
			}
			if problem := importProblem(s.dir, imported, allowed); problem != "" {
				t.Errorf("%s: %s", s.path, problem)
			}
		}
	}
}

// allowedFor returns the row of the longest prefix of dir.
func allowedFor(dir string) []string {
	for d := dir; ; d = path.Dir(d) {
		if row, found := mayImport[d]; found && (d != "." || dir == ".") {
			return row
		}
		if d == "." {
			return nil
		}
	}
}

// importProblem says why a package in dir may not import a path, or "".
func importProblem(dir, imported string, allowed []string) string {
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") {
		return "" // standard library
	}
	if imported == module+"/"+dir || strings.HasPrefix(imported, module+"/"+dir+"/") && dir != "." {
		return ""
	}
	for _, row := range allowed {
		if row == "." {
			if imported == module {
				return ""
			}
			continue
		}
		full := row
		if !strings.Contains(strings.SplitN(row, "/", 2)[0], ".") {
			full = module + "/" + row
		}
		if imported == full || strings.HasPrefix(imported, full+"/") {
			return ""
		}
	}
	return dir + " may not import " + imported
}

func TestTheImportRuleCatchesAWrongImport(t *testing.T) {
	for _, wrong := range []struct{ dir, imported string }{
		{".", "github.com/google/uuid"},
		{".", module + "/provider"},
		{"store/sqlite", "modernc.org/sqlite"},
		{"provider", module + "/store/memory"},
		{"store/sqlite", module + "/store/memory"},
		{"internal/gateway", module + "/store/sqlite"},
		{"confirm", module + "/store/sqlite"},
		{"conformance", module + "/internal/gateway"},
		{"new/package", module},
	} {
		if importProblem(wrong.dir, wrong.imported, allowedFor(wrong.dir)) == "" {
			t.Errorf("%s may import %s, by the table", wrong.dir, wrong.imported)
		}
	}
}

func TestTheRootStaysSmall(t *testing.T) {
	types, funcs := 0, 0
	for _, s := range sources(t) {
		if s.dir != "." || s.isTest {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					funcs++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() {
						types++
					}
				}
			}
		}
	}
	t.Logf("root package: %d exported types, %d exported functions", types, funcs)
	if types == 0 || types > 25 || funcs == 0 || funcs > 20 {
		t.Errorf("root package has %d exported types (at most 25) and %d functions (at most 20)", types, funcs)
	}
}

func TestFilesAndFunctionsStayReadable(t *testing.T) {
	longestFile, longestFunc := "", ""
	fileLines, funcLines := 0, 0
	for _, s := range sources(t) {
		limit := 500
		if s.isTest {
			limit = 800
		}
		if s.lines > limit {
			t.Errorf("%s has %d lines, at most %d", s.path, s.lines, limit)
		}
		if s.lines > fileLines && !s.isTest {
			longestFile, fileLines = s.path, s.lines
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
			if lines > 100 && !s.isTest {
				t.Errorf("%s: %s has %d lines, at most 100", s.path, f.Name.Name, lines)
			}
			if lines > funcLines && !s.isTest {
				longestFunc, funcLines = s.path+": "+f.Name.Name, lines
			}
			if f.Name.Name == "init" && f.Recv == nil {
				t.Errorf("%s has an init function", s.path)
			}
		}
	}
	t.Logf("longest file %s (%d lines), longest function %s (%d lines)", longestFile, fileLines, longestFunc, funcLines)
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest {
			continue
		}
		documented[s.dir] = documented[s.dir] || s.file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package in %s has no comment", dir)
		}
		for _, vague := range []string{"util", "common", "helpers", "types", "models", "pkg", "shared", "misc"} {
			if path.Base(dir) == vague {
				t.Errorf("package %s has a name that says nothing", dir)
			}
		}
	}
}

func TestEveryDependencyHasItsReason(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var direct, listed []string
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.HasPrefix(line, "\t") {
			direct = append(direct, fields[0])
		}
	}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, " | ")
		if name := strings.TrimPrefix(cells[0], "| "); len(cells) == 3 && strings.Contains(name, ".") {
			listed = append(listed, name)
		}
	}
	slices.Sort(listed)
	if len(direct) == 0 || !slices.Equal(direct, listed) {
		t.Errorf("go.mod requires\n%v\ndocs/dependencies.md has\n%v", direct, listed)
	}
}

func TestTestsDoNotSleepAndSecretsAreNotComparedByContent(t *testing.T) {
	secretsBeside := []string{"provider", ".", "internal/gateway", "internal/outbound"}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := selector(sel)
			if s.isTest && name == "time.Sleep" && !usesSynctest(s.file) {
				t.Errorf("%s: a test sleeps", s.set.Position(n.Pos()))
			}
			if !s.isTest && slices.Contains(secretsBeside, s.dir) && name == "bytes.Equal" {
				t.Errorf("%s: compare with hmac.Equal or subtle.ConstantTimeCompare", s.set.Position(n.Pos()))
			}
			return true
		})
	}
}

func selector(sel *ast.SelectorExpr) string {
	if id, ok := sel.X.(*ast.Ident); ok {
		return id.Name + "." + sel.Sel.Name
	}
	return ""
}

// usesSynctest reports whether a file's time is a bubble's.
func usesSynctest(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
}
