// Ichido is a webhook inbox in front of services written in anything: it
// verifies, stores, confirms and delivers webhooks, each one once.
//
// This program only wires: the commands are in internal/cli.
package main

import (
	"context"
	"os"

	"ichido.dev/ichido/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), cli.Env{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Driver:    sqliteDriver(),
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	}))
}
