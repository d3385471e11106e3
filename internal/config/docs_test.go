package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ichido.dev/ichido"
)

// settingPaths returns the path of every setting that has a value.
func settingPaths(t reflect.Type, path string) []string {
	switch {
	case t == reflect.TypeFor[Secret]() && path != "SECRET":
		return []string{path}
	case t.Kind() == reflect.Pointer:
		return settingPaths(t.Elem(), path)
	case t.Kind() == reflect.Slice && t.Elem() == reflect.TypeFor[Source]():
		return append(settingPaths(t.Elem(), path+"[]"), path)
	case t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[Ref]():
		return []string{path}
	}
	var paths []string
	for i := range t.NumField() {
		paths = append(paths, settingPaths(t.Field(i).Type, join(path, t.Field(i).Tag.Get("yaml")))...)
	}
	return paths
}

// documented returns the rows of the tables in docs/configuration.md, by what
// they are about, with their columns.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		columns := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if name := strings.Trim(strings.TrimSpace(columns[0]), "`"); len(columns) > 2 && strings.HasPrefix(line, "| `") {
			if rows[name] != nil {
				t.Errorf("%s is documented twice", name)
			}
			rows[name] = columns
		}
	}
	return rows
}

// TestEverySettingIsDocumentedAndNothingElse: also those of the environment.
func TestEverySettingIsDocumentedAndNothingElse(t *testing.T) {
	want := append(settingPaths(reflect.TypeFor[Config](), ""), settingPaths(reflect.TypeFor[Secret](), "SECRET")...)
	_, err := FromEnvironment(func(name string) (string, bool) {
		want = append(want, name)
		return strings.Repeat("x9", 12), true
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for name := range documented(t) {
		got = append(got, name)
	}
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(want, got, sorted); diff != "" {
		t.Errorf("settings of the code and of docs/configuration.md (-code +docs):\n%s", diff)
	}
}

// written returns a value as one writes it in the file.
func written(value any) string {
	const day = 24 * time.Hour
	short := func(d time.Duration) string {
		if d > day && d%day == 0 {
			return fmt.Sprintf("%dd", d/day)
		}
		return strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(d.String())
	}
	switch v := value.(type) {
	case Duration:
		return short(time.Duration(v))
	case Keep:
		return short(time.Duration(v))
	case Size:
		return fmt.Sprintf("%dMiB", v>>20)
	case []time.Duration:
		var all []string
		for _, d := range v {
			all = append(all, short(d))
		}
		return strings.Join(all, "`, `")
	}
	return fmt.Sprint(value)
}

// TestDocumentedDefaultsAreThoseOfTheCode, where package config has them.
func TestDocumentedDefaultsAreThoseOfTheCode(t *testing.T) {
	c := Parse([]byte("sources: [{name: NAME, provider: github}]")).Config
	s := c.Sources[0]
	rows := documented(t)
	for name, value := range map[string]any{
		"listen":                        c.Listen,
		"admin.listen":                  c.Admin.Listen,
		"store":                         c.Store,
		"limits.connections":            c.Limits.Connections,
		"limits.free_disk":              c.Limits.FreeDisk,
		"retention.bodies":              c.Retention.Bodies,
		"sources[].path":                s.Path,
		"sources[].deliver.timeout":     s.Deliver.Timeout,
		"sources[].deliver.concurrency": s.Deliver.Concurrency,
		"sources[].deliver.backoff":     ichido.DefaultBackoff(),
		"HOOK_DB":                       "webhook.db",
	} {
		if row := rows[name]; row == nil || strings.TrimSpace(row[2]) != "`"+written(value)+"`" {
			t.Errorf("%s: documented is %q, and the default is %s", name, row, written(value))
		}
	}
	db, err := FromEnvironment(func(name string) (string, bool) {
		return strings.Repeat("x9", 12), name != "HOOK_DB" && name != "GEMINI_API_KEY"
	})
	if err != nil || db.Store != "sqlite:webhook.db" {
		t.Errorf("without HOOK_DB the store is %v, %v", db, err)
	}
}

// TestExampleOfTheDocumentationIsGood: people copy it.
func TestExampleOfTheDocumentationIsGood(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(data)
	if example == nil {
		t.Fatal("there is no example")
	}
	if err := Parse(example[1]).Problems(); err != nil {
		t.Error(err)
	}
}
