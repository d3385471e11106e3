package memory_test

import (
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/storetest"
)

func open(_ testing.TB, s storetest.Setup) *storetest.Store {
	// One capacity serves events and claims, and one retention both.
	m := memory.New(memory.Options{
		Clock: s.Clock, Keys: s.ClaimRetention,
		Capacity: max(s.Capacity, s.ClaimCapacity), Running: s.ClaimRunning,
	})
	st := &storetest.Store{Queue: m, Archive: m, Claims: m.Claims(), Without: map[string]string{
		"Crash": "nothing in it outlives its process",
		"Check": "it has no form of its own that could be damaged",
	}}
	st.KeepEffects(func(h ichido.Handler) ichido.Applier { return m.Apply(h) })
	return st
}

func TestContract(t *testing.T) { storetest.Run(t, open) }
