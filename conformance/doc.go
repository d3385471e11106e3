// Package conformance holds three published designs of webhook receivers to
// their word: every requirement of theirs is a row, and every row is a test
// whose name carries it.
//
//   - TestGemini, rows A: a receiver for the Gemini API with three layers of
//     defence: a secret path and header, one commit for key and work, and the
//     API as the only fact.
//   - TestFramework, rows B: a framework that handles webhooks safely: raw
//     bytes first, a claim before the handler, nothing handled twice.
//   - TestLedger, rows C: a signed webhook that arrives twice and is added to
//     a total once, in the transaction that remembers it.
//
// The tests use the public packages only, over HTTP, on a real SQLite file and
// on the memory store; what belongs to the program is tested by running it.
//
// The package has no code to import, and says nothing about speed, crashes of
// the machine, or senders that the three documents do not mention.
package conformance
