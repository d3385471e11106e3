package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ichido": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// Two free ports for what a script serves.
			for _, name := range []string{"INGEST", "ADMIN"} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				env.Setenv(name, l.Addr().String())
				if err := l.Close(); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":   await,
			"capture": capture,
			"replace": replace,
		},
	})
}

// await runs a command until it succeeds: await CMD ARG...
func await(ts *testscript.TestScript, neg bool, args []string) {
	for range 400 {
		if err := ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
		if err := ts.Exec("sh", "-c", "sleep 0.05"); err != nil {
			ts.Fatalf("wait: %v", err)
		}
	}
	ts.Fatalf("%v never succeeded", args)
}

// capture sets a variable to the first word of the last output with a
// prefix: capture NAME PREFIX
func capture(ts *testscript.TestScript, neg bool, args []string) {
	for _, word := range strings.FieldsFunc(ts.ReadFile("stdout"), func(r rune) bool { return strings.ContainsRune(" \t\n\",{}", r) }) {
		if strings.HasPrefix(word, args[1]) {
			ts.Setenv(args[0], word)
			return
		}
	}
	ts.Fatalf("no word with prefix %q in the last output", args[1])
}

// replace puts variables into a file: replace FILE
func replace(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}
