package main

import (
	"bytes"
	"context"
	"testing"
)

// TestWhatIsAcknowledgedIsOnTheDisk is the short variant of the program.
func TestWhatIsAcknowledgedIsOnTheDisk(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), options{points: 40, controls: 60, fails: 6, requests: 200, seed: 20261130, dir: t.TempDir()}, &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
}
