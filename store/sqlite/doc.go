// Package sqlite keeps events and inline claims in an SQLite database, for
// one machine. It takes a *sql.DB of any driver and may share the database
// with the tables of the service that uses it.
//
// A nil error of a write means that the log was flushed to the disk after the
// write: it survives the end of the process and of the machine. The package
// does not replicate, does not notice a disk that lies about a flush, and
// does not serve several machines: a network file system is not a place for
// an SQLite database.
package sqlite
