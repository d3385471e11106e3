// Package faultdriver wraps a database/sql driver for SQLite so that a test
// can end the process at a chosen statement, or break a promise that the store
// rests on. It is how the crash tests hit the same instant again and again,
// and how they prove that they would see a store that loses events.
//
// It is linked only under the build tag "fault" and by test programs; the
// binary that people run does not contain it. It knows statements by their
// words, not by the store's code, and it never changes one unless it is told to.
package faultdriver
