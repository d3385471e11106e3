package confirm

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
)

// member returns the JSON at a path of object members, compared exactly: a
// struct would also take "NAME" for "name".
func member(raw []byte, path ...string) (json.RawMessage, bool) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return nil, false
		}
		value, ok := object[name]
		if !ok {
			return nil, false
		}
		raw = value
	}
	return raw, true
}

// stringAt returns the string at a path: "" when there is none.
func stringAt(raw []byte, path ...string) string {
	value, _ := member(raw, path...)
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// decode returns JSON as values for expressions: whole numbers of up to 64
// bits as int, larger ones as their decimal text, so that none is rounded;
// other numbers as float64.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return exact(value), nil
}

func exact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = exact(v[name])
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case json.Number:
		return number(v.String())
	}
	return value
}

func number(text string) any {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strings.ContainsAny(text, ".eE") {
		return f
	}
	return text
}

// retryInfo returns how long a Google API asks to wait, in the RetryInfo of
// its error; 0 when it does not. At most 24 hours.
func retryInfo(body []byte) time.Duration {
	details, _ := member(body, "error", "details")
	var list []json.RawMessage
	if json.Unmarshal(details, &list) != nil {
		return 0
	}
	for _, detail := range list {
		if stringAt(detail, "@type") != "type.googleapis.com/google.rpc.RetryInfo" {
			continue
		}
		if wait, err := time.ParseDuration(stringAt(detail, "retryDelay")); err == nil {
			return min(max(wait, 0), 24*time.Hour)
		}
	}
	return 0
}
