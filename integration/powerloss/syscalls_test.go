package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	conn = "11<TCP:[127.0.0.1:8080->127.0.0.1:5000]>"
	wal  = "7</data/events.db-wal>"
	db   = "6</data/events.db>"
	ask  = "1 read(" + conn + `, "POST /hooks/gith"..., 4096) = 1500`
	good = "1 write(" + conn + `, "HTTP/1.1 200 OK"..., 200) = 200`
)

// TestATraceIsJudgedByTheOrderOfItsCalls: the checker is what the claim rests
// on, so it has its own cases.
func TestATraceIsJudgedByTheOrderOfItsCalls(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  evidence
	}{
		{"flush between", []string{ask, "2 fdatasync(" + wal + ") = 0", good}, evidence{acknowledged: 1, flushes: 1}},
		{"no flush", []string{ask, good}, evidence{acknowledged: 1, unproven: 1}},
		{"flush of the database only", []string{ask, "2 fdatasync(" + db + ") = 0", good}, evidence{acknowledged: 1, unproven: 1}},
		{"flush before", []string{"2 fdatasync(" + wal + ") = 0", ask, good}, evidence{acknowledged: 1, unproven: 1, flushes: 1}},
		{
			"flush begun before the request was read",
			[]string{"2 fdatasync(" + wal + " <unfinished ...>", ask, "2 <... fdatasync resumed>) = 0", good},
			evidence{acknowledged: 1, unproven: 1, flushes: 1},
		},
		{
			"flush not ended",
			[]string{ask, "2 fdatasync(" + wal + " <unfinished ...>", good, "2 <... fdatasync resumed>) = 0"},
			evidence{acknowledged: 1, unproven: 1, flushes: 1},
		},
		{
			"flush with two lines",
			[]string{ask, "2 fsync(" + wal + " <unfinished ...>", "3 read(9<pipe:[1]>, \"\", 1) = 0", "2 <... fsync resumed>) = 0", good},
			evidence{acknowledged: 1, flushes: 1},
		},
		{
			"failed flush",
			[]string{ask, "2 fdatasync(" + wal + ") = -1 EIO (Input/output error) (INJECTED)", good},
			evidence{acknowledged: 1, unproven: 1, failed: 1},
		},
		{
			"request after a failed flush",
			[]string{"2 fdatasync(" + wal + ") = -1 EIO (Input/output error) (INJECTED)", ask, "2 fdatasync(" + wal + ") = 0", good},
			evidence{acknowledged: 1, afterFailure: 1, flushes: 1, failed: 1},
		},
		{"another connection's request, in two lines", []string{
			ask, "2 fdatasync(" + wal + ") = 0",
			strings.Replace(ask, conn, "12<TCP:[127.0.0.1:8080->127.0.0.1:5001]> <unfinished ...>\n1 <... read resumed>", 1), good,
		}, evidence{acknowledged: 1, flushes: 1}},
		{"an answer to a GET", []string{strings.Replace(ask, "POST", "GET ", 1), good}, evidence{}},
		{"a refusal", []string{ask, strings.Replace(good, "200 OK", "503 Se", 1)}, evidence{}},
	} {
		path := filepath.Join(t.TempDir(), "trace")
		if err := os.WriteFile(path, []byte(strings.Join(c.lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readTrace(path)
		if err != nil || *got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}
