//go:build !fault

package main

import _ "modernc.org/sqlite" // registers "sqlite"

// sqliteDriver returns the name of the database driver that is linked.
func sqliteDriver() string { return "sqlite" }
