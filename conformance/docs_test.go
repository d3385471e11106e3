package conformance

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goDoc returns the documentation of a package, or of a symbol of it: a type,
// a function, or "Type.Method"; "" stands for the package.
func goDoc(t *testing.T, dir, symbol string) string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(set, files, "ichido.dev/ichido")
	if err != nil {
		t.Fatal(err)
	}
	if symbol == "" {
		return p.Doc
	}
	typeName, method, _ := strings.Cut(symbol, ".")
	for _, kind := range p.Types {
		if kind.Name != typeName {
			continue
		}
		if method == "" {
			return kind.Doc
		}
		for _, f := range kind.Methods {
			if f.Name == method {
				return f.Doc
			}
		}
	}
	for _, f := range p.Funcs {
		if f.Name == symbol {
			return f.Doc
		}
	}
	t.Fatalf("%s has no documented %s", dir, symbol)
	return ""
}

// providerPage returns the section of docs/providers.md about a provider.
func providerPage(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "\n## "+name+"\n")
	if !found {
		t.Fatalf("docs/providers.md has no section %q", name)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return strings.NewReplacer("**", "", "`", "").Replace(section)
}

// documents reports each sentence that a text does not have, however its lines
// are broken.
func documents(t *testing.T, text string, sentences ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	for _, sentence := range sentences {
		if !strings.Contains(flat, sentence) {
			t.Errorf("the documentation does not say %q; it says:\n%s", sentence, text)
		}
	}
}

// comparesInConstantTime reports a package that no longer compares secrets
// with crypto/subtle or crypto/hmac. That it compares nothing in another way
// is not something a test can see.
func comparesInConstantTime(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				pkg, _ := sel.X.(*ast.Ident)
				if pkg != nil && (pkg.Name == "subtle" && sel.Sel.Name == "ConstantTimeCompare" || pkg.Name == "hmac" && sel.Sel.Name == "Equal") {
					calls++
				}
			}
			return true
		})
	}
	if calls == 0 {
		t.Errorf("nothing in %s compares in constant time", dir)
	}
}
