package main

import (
	"bytes"
	"context"
	"testing"
	"time"
)

// TestFloodsStayWithinMemoryAndTheGoodSenderIsServed is the short variant of
// the program: fewer senders, shorter phases, the same bars.
func TestFloodsStayWithinMemoryAndTheGoodSenderIsServed(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), options{
		large: 200, slow: 500, bad: 30_000, badSenders: 16, naiveSenders: 64,
		hold: 4 * time.Second, limit: 40 * time.Second, dir: t.TempDir(),
	}, &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
}
