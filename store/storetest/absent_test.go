package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
)

// TestNothingIsLeftOutInSilence: a store explains what it does not have.
func TestNothingIsLeftOutInSilence(t *testing.T) {
	left, wrong := absent(&Store{
		Check: func(testing.TB) {}, Apply: func(Handler) ichido.Applier { return nil },
		Without: map[string]string{"Claims": "for a reason", "Check": "it is there", "Clams": "mistyped"},
	})
	if diff := cmp.Diff([]string{"the rules of Claims are left out: for a reason"}, left); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"Check is there, and Without says that it is not",
		"Crash is not there: say why in Without",
		"Without names Clams, which is no feature",
		"Apply needs Effects",
	}, wrong); diff != "" {
		t.Error(diff)
	}
}
