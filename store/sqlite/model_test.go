package sqlite_test

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/storetest"
)

// TestStoreBehavesAsTheModel makes random calls to this store and to the
// reference model. A failure is shrunk to the fewest and smallest calls. It
// walks 30 times; more with -rapid.checks.
func TestStoreBehavesAsTheModel(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("30"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		clock := storetest.NewClock()
		m := memory.New(memory.Options{Clock: clock.Now, Keys: 1 << 62, Capacity: 9})
		s := openStore(t, newPath(t), storetest.Setup{Clock: clock.Now, Capacity: 9})
		draw := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(rt, label) }
		storetest.Walk(rt, t, draw, 25, &storetest.Store{Queue: m, Archive: m}, s, clock)
	})
}
