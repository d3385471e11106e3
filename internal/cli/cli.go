// Package cli is the command line of ichido: one file per command, no logic
// that another program would want.
//
// Rules of output, for every command:
//
//   - Results go to standard output, everything else to standard error.
//   - With --json, standard output is JSON and nothing else; one document, or
//     one line per item where the command says so.
//   - Errors are one line, "ichido: what went wrong", then a line "hint: …"
//     where there is something to do. No capitals, no full stops. With --json
//     they are one line of JSON on standard error, with error, hint and code.
//   - What is printed controls no terminal: what does not print is escaped.
//     Only show --body writes bytes as they are.
//   - Secrets are printed only by the command that makes them.
//   - Colours only on a terminal, and never with NO_COLOR.
//   - Nothing asks questions.
//
// Exit codes: 0 done; 1 it failed; 2 wrong usage or configuration; 3 nothing
// was found.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitNone  = 3
)

// Env is the world as a command sees it.
type Env struct {
	Args           []string // without the program's name
	LookupEnv      func(string) (string, bool)
	Driver         string // name of the database/sql driver for SQLite that is linked
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// failure is an error with an exit code and a hint.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usage returns an error for wrong usage or configuration.
func usage(hint, format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...), hint}
}

// app is what the commands share.
type app struct {
	env            Env // its writers are for bytes as they are, and for the log
	stdout, stderr *output
	json           bool
}

func newApp(env Env) *app {
	a := &app{env: env}
	a.stdout = &output{to: env.Stdout, json: &a.json}
	a.stderr = &output{to: env.Stderr, json: &a.json}
	return a
}

// Run runs one command and returns its exit code.
func Run(ctx context.Context, env Env) int {
	a := newApp(env)
	root := a.root()
	root.SetArgs(env.Args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.stdout.err // what cobra prints comes without its errors
	}
	if err == nil {
		return exitOK
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitError, err: err}
		if strings.HasPrefix(err.Error(), "unknown command") { // cobra's, from where no command has a say
			f.code, f.hint = exitUsage, `"ichido --help" lists the commands`
		}
	}
	a.json = a.json || slices.Contains(env.Args, "--json") // the flags may not have been read to their end
	a.tell("ichido", "error", f.err.Error(), f)
	return f.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ichido",
		Short: "A webhook inbox: every genuine webhook, stored before it is acknowledged, applied once",
		Long: `A webhook inbox: every genuine webhook, stored before it is acknowledged,
applied once.

Results go to standard output, everything else to standard error; with --json
both are JSON. Exit codes: 0 done; 1 it failed; 2 wrong usage or configuration;
3 nothing was found.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.env.Stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, errors too")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help"), "%w", err)
	})
	root.AddCommand(
		a.serve(), a.check(), a.demo(), a.send(),
		a.events(), a.show(), a.dead(), a.replay(),
		a.bench(), a.token(), a.version(),
	)
	adopt(root)
	return root
}
