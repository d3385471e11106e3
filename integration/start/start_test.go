package main

import (
	"bytes"
	"context"
	"testing"
	"time"
)

// TestStartsSoonWithManyEvents is the short variant of the program.
func TestStartsSoonWithManyEvents(t *testing.T) {
	var out bytes.Buffer
	o := options{events: 50_000, pending: 5_000, starts: 2, limit: time.Minute, dir: t.TempDir()}
	err := run(context.Background(), o, &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
	if within(3*time.Second, 2*time.Second) == nil {
		t.Error("a start of three seconds was within two")
	}
}
