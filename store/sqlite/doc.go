// Package sqlite keeps events and inline claims in an SQLite database, for
// one machine. It takes a *sql.DB of any driver and may share the database
// with the tables of the service that uses it.
//
// A nil error of a write means that the log was flushed to the disk after the
// write: it survives the end of the process and of the machine. The package
// does not replicate, does not notice a disk that lies about a flush, and
// does not serve several machines: a network file system is not a place for
// an SQLite database.
//
// # Life of an event
//
//   - [Store.Put] hands its records to the committer, the one goroutine that
//     owns the writing connection, and waits. The committer takes what waits,
//     puts, settlements and claims alike, runs it in one transaction, and
//     answers everybody when the commit has returned. Alone, a call costs one
//     flush; under load the groups grow by themselves.
//   - [Store.Claim] finds what is due by three partial indexes that hold only
//     events in work. In the same transaction it may claim what was put a
//     moment before. Bodies are read after the commit, from memory where they
//     are fresh, else over the pool.
//   - [Store.Settle] settles all claims that end alike with one statement. It
//     checks the token in that statement; when one does not fit, it takes the
//     claims one by one.
//   - [Store.Tx] has the writing connection for itself for one transaction,
//     between two groups, and the write lock before it reads.
//   - [Store.Purge] removes bodies, and later keys, by an index of what is
//     settled. [Store.Replay] looks for its events outside of the write lock,
//     and takes it to change them by their numbers, 500 at a time.
//
// # When something fails
//
// A transaction that fails is rolled back, and everybody in it gets an error
// that wraps ichido.ErrUnavailable. If the database refused one statement,
// each call is run again in a transaction of its own, so that one bad record
// costs one call. A failed commit is never run again. After an I/O error the
// store takes no more writes ([Store.Failed]): the kernel may have dropped
// what it could not write, and the next flush would not say so. The same when
// the database file, its log or a lock file was removed or replaced: once a
// second the store compares those that it has open with those of that name. A
// full disk and another process that writes are waited out by the callers.
//
// # What was measured
//
// The benchmarks beside this file print CPU time of the whole process for
// each event, submitters and workers included, with 1.3 KB bodies and a real
// flush; two cores, a virtual disk, other programs running. Accepting costs
// about 40 us at 256 submitters, a whole life (accept, claim with body,
// settle) 52 to 65 us. What was tried, and what became of it:
//
//   - Inserts of 4 to 32 rows in one statement cost the same as single rows:
//     the work is in the B-trees and the log. So each record has its own
//     statement, and its verdict at once.
//   - Claims and settlements of a group in one statement each, over a JSON
//     list of row numbers, save about 8 us.
//   - Bodies of fresh events from memory save about 12 us.
//   - Statement journals in memory save about 6 us; a page cache of 8 MiB in
//     place of 32 MiB saves about 4 us (see settings).
//   - Inserting a group in the order of its hashes gained nothing that could
//     be measured, and would lose the order of acceptance: it is not done.
//   - The index of settled events costs less than the noise of the runs.
package sqlite
