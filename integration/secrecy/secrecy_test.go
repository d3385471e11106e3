package main

import (
	"bytes"
	"context"
	"testing"
)

// TestSecretsAreInNoOutput is the short variant of the program.
func TestSecretsAreInNoOutput(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), 4000, 20261130, t.TempDir(), &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
}

func TestASearchFindsEveryFormOfACanary(t *testing.T) {
	c := canaries{}
	c.addBytes("x", []byte("0123456789abcdefghij"))
	for _, text := range []string{
		"..0123456789abcdefghij..", "=30313233343536373839616263646566", "MDEyMzQ1Njc4OWFiY2RlZg", "30313233343536373839414243",
	} {
		if hits, _ := c.search([]byte(text)); hits == 0 {
			t.Errorf("%q holds the canary, and it was not found", text)
		}
	}
	if hits, what := c.search([]byte("0123456789abcde, 3031323334")); hits != 0 {
		t.Errorf("found %s where there is none", what)
	}
}
