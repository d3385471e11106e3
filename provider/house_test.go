package provider

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
)

// Signatures and secrets are compared in constant time only. The comparisons
// that could be taken for it are not used in this package, but where they
// stand for names.
func TestNoComparisonThatStopsEarly(t *testing.T) {
	banned := []string{"bytes.Equal", "bytes.Compare", "bytes.EqualFold", "strings.Compare", "reflect.DeepEqual", "strings.EqualFold", "slices.Equal", "slices.Compare"}
	allowed := []string{
		"cutPrefix",  // a literal before a signature
		"basicValue", // the word Basic
		"match",      // the name of a JSON member
		"slot",       // a path in a profile
	}
	if reports := earlyComparisons(t, os.DirFS("."), banned, allowed); len(reports) > 0 {
		t.Errorf("use subtle.ConstantTimeCompare or hmac.Equal: %v", reports)
	}
	if reports := earlyComparisons(t, os.DirFS("."), banned, nil); len(reports) < 4 {
		t.Errorf("the check does not see what is there: %v", reports)
	}
}

func earlyComparisons(t *testing.T, dir fs.FS, banned, allowed []string) []string {
	t.Helper()
	var reports []string
	files, err := fs.Glob(dir, "*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := fs.ReadFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || slices.Contains(allowed, f.Name.Name) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := call.X.(*ast.Ident); ok && slices.Contains(banned, pkg.Name+"."+call.Sel.Name) {
						reports = append(reports, name+": "+f.Name.Name)
					}
				}
				return true
			})
		}
	}
	return reports
}
