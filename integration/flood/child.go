package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// child is a sender in a process of its own, as in life senders are other
// machines: the floods run with a low priority, so that they do not take the
// processor from the server and from the good sender.
type child struct {
	kind        string
	address     string
	connections int
	deliveries  int
}

// figures are what a child prints when it has ended.
type figures struct {
	Flood tally   `json:",omitempty"`
	Held  int     `json:",omitempty"` // connections that the server had not closed in time
	Good  service `json:",omitempty"`
}

// run sends until there is nothing left to send or until in ends, and writes
// the figures to out.
func (c child) run(in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends when the parent closes it
		stop()
	}()
	var f figures
	switch c.kind {
	case "good":
		f.Good = good(ctx, c.address)
	case "large":
		f.Flood = large(ctx, c.address, c.connections)
	case "slow":
		f.Flood = slow(ctx, c.address, c.connections)
	case "withheld":
		f.Flood, f.Held = withheld(ctx, c.address, c.connections, freedIn)
	case "bad":
		f.Flood = bad(ctx, c.address, c.connections, c.deliveries)
	default:
		return fmt.Errorf("there is no sender %q", c.kind)
	}
	return json.NewEncoder(out).Encode(f)
}

// await runs a child as a process until it ends by itself or ctx ends.
func (s *server) await(ctx context.Context, c child) (f figures, err error) {
	argv := []string{s.self, "-send", c.kind, "-to", s.address, "-connections", strconv.Itoa(c.connections), "-deliveries", strconv.Itoa(c.deliveries)}
	if c.kind != "good" {
		argv = append([]string{"nice", "-n", "10"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return f, fmt.Errorf("start the %s sender: %w", c.kind, err)
	}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return f, fmt.Errorf("run the %s sender: %w", c.kind, err)
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return f, fmt.Errorf("read the figures of the %s sender: %w", c.kind, err)
	}
	return f, nil
}
