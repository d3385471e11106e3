package provider

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestCanonicalJSON(t *testing.T) {
	tests := []struct{ value, want string }{
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{`{"\ufb33":1,"\ud83d\ude00":2,"z":3}`, "{\"z\":3,\"\U0001f600\":2,\"\ufb33\":1}"}, // UTF-16 order: the surrogates come first
		{`"\u0041\/\u00e9\n\u001f"`, "\"A/é\\n\\u001f\""},
		{`[1.0, 1e2 ,-0,0.50]`, `[1,100,0,0.5]`},
		{`9007199254740993`, `9007199254740993`},
		{`1e-3`, `0.001`},
		{`12.5e1`, `125`},
		{`1e500`, `1e500`},
		{`-1e-500`, `-1e-500`},
		{`{"a":{"d":[],"c":{}},"b":null}`, `{"a":{"c":{},"d":[]},"b":null}`},
	}
	for _, tt := range tests {
		got, ok := appendCanonical(nil, []byte(tt.value), 0)
		if !ok || string(got) != tt.want {
			t.Errorf("%s is %s, %v; want %s", tt.value, got, ok, tt.want)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `[{"a":1,"a":2}]`, `"\ud800"`, `1e99999999999`, ``} {
		if got, ok := appendCanonical(nil, []byte(bad), 0); ok {
			t.Errorf("%s is %s", bad, got)
		}
	}
}

// Apart from numbers, it is what RFC 8785 says.
func TestCanonicalJSONIsThatOfTheLibrary(t *testing.T) {
	for _, text := range []string{
		`{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}`,
		`{"1":{"f":{"f":"hi","F":5},"\n":56},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}`,
		`["\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",true,null,false]`,
	} {
		want := jsontext.Value(text)
		if err := want.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		if got, ok := appendCanonical(nil, []byte(text), 0); !ok || string(got) != string(want) {
			t.Errorf("%s, %v; want %s", got, ok, want)
		}
	}
}
