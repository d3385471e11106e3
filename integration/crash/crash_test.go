package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"ichido.dev/ichido/integration/internal/subject"
)

// TestKilledProcessesLoseNothing is the short variant of the program: the
// same campaigns and controls with fewer cycles.
func TestKilledProcessesLoseNothing(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), options{cycles: 16, ledger: 8, control: 50, perCycle: 800, seed: 20261130, dir: t.TempDir()}, &out)
	t.Logf("\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
}

// TestTheBinaryForPeopleHasNoFaultsInIt: the wrapper must never be shipped.
func TestTheBinaryForPeopleHasNoFaultsInIt(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	for _, build := range []struct {
		tags []string
		want bool
	}{{nil, false}, {[]string{"fault"}, true}} {
		path, err := subject.Build(ctx, filepath.Join(dir), build.tags...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := bytes.Contains(text, []byte("internal/faultdriver")) || bytes.Contains(text, []byte("ICHIDO_FAULT")); found != build.want {
			t.Errorf("built with tags %v, the binary holds faults: %t", build.tags, found)
		}
	}
}

func TestTheOracleReadsItsLogBackFromTheDisk(t *testing.T) {
	j, err := openJournal(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	o := newOracle(1, gatewaySources(), j)
	e := o.addLocked(&o.sources[1], 0, "")
	if err := j.sent(e, sendNew); err != nil {
		t.Fatal(err)
	}
	j.answered(e, 200)
	said, err := j.read()
	if err != nil {
		t.Fatal(err)
	}
	if said.bodies[e.hash] != e.body || !said.acked[e.hash] {
		t.Errorf("the log says body %x, acknowledged %t", said.bodies[e.hash], said.acked[e.hash])
	}
}
