//go:build race

package provider

// raceEnabled says that pools drop values at random, as they do under the
// race detector.
const raceEnabled = true
