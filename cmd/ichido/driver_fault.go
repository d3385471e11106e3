//go:build fault

package main

import (
	"database/sql"
	"fmt"
	"os"

	_ "modernc.org/sqlite" // registers "sqlite"

	"ichido.dev/ichido/internal/faultdriver"
)

// sqliteDriver wraps the database driver with the faults that the environment
// names, for the crash tests, and returns the name of the wrapped one.
func sqliteDriver() string {
	const name = "sqlite-fault"
	plan, err := faultdriver.Parse(os.Getenv(faultdriver.Variable))
	if err != nil {
		fmt.Fprintf(os.Stderr, "ichido: %v\n", err)
		os.Exit(2)
	}
	db, err := sql.Open("sqlite", "")
	if err != nil {
		fmt.Fprintf(os.Stderr, "ichido: %v\n", err)
		os.Exit(2)
	}
	defer db.Close()
	sql.Register(name, faultdriver.New(db.Driver(), plan))
	return name
}
