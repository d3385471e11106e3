package gateway

import "runtime/debug"

// Settings of the garbage collector, unless the environment has its own.
//
// A receiver's live heap is small and its garbage short-lived, so collecting
// at five times the live heap costs little memory and saves processor time;
// the limit takes over when floods of unverified bodies fill the budgets.
const (
	gcPercent   = 400
	memoryLimit = 160 << 20
)

// TuneCollector sets the garbage collector for a process that runs a gateway.
func TuneCollector(getenv func(string) (string, bool)) {
	if _, set := getenv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := getenv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(memoryLimit)
	}
}
