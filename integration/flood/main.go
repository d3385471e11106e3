// Flood sends what nobody signed at the real binary in its default
// configuration: large bodies, slow connections, bodies that do not come and
// bad signatures, in turn and all at once. Meanwhile a good sender must be
// served in time, the process must stay within its memory and close what only
// waits, and nothing unverified may be stored.
//
// It does not look for the highest rate that is served; that is what
// `ichido bench` is for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// options are the size of a run.
type options struct {
	large, slow  int // connections
	bad          int // deliveries
	badSenders   int
	hold         time.Duration // how long large and slow senders go on, alone
	limit        time.Duration // of a phase that counts deliveries
	naiveSenders int
	dir          string
}

// Bars.
const (
	memoryBar  = 256 << 20
	latencyBar = time.Second
	bodySize   = 25 << 20
)

func main() {
	o := options{naiveSenders: 64}
	var sender child
	flag.IntVar(&o.large, "large", 1000, "concurrent senders of 25 MiB bodies")
	flag.IntVar(&o.slow, "slow", 2000, "connections that send one byte per second")
	flag.IntVar(&o.bad, "bad", 500_000, "deliveries with a bad signature")
	flag.IntVar(&o.badSenders, "bad-senders", 64, "connections that send them")
	flag.DurationVar(&o.hold, "hold", 25*time.Second, "how long the large and the slow senders go on")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "longest time for the bad signatures of one phase")
	flag.StringVar(&o.dir, "dir", "", "folder for the data; default: a temporary one")
	naive := flag.Bool("naive", false, "serve the receiver without limits that is the control")
	flag.StringVar(&sender.kind, "send", "", "be one sender: good, large, slow, withheld or bad")
	flag.StringVar(&sender.address, "to", "", "address that it sends to")
	flag.IntVar(&sender.connections, "connections", 1, "its connections")
	flag.IntVar(&sender.deliveries, "deliveries", 0, "its deliveries, where they are counted")
	flag.Parse()
	var err error
	switch {
	case *naive:
		err = serveNaive()
	case sender.kind != "":
		err = sender.run(os.Stdin, os.Stdout)
	default:
		err = run(context.Background(), o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

// run runs the phases and the control, and returns every bar that was missed.
func run(ctx context.Context, o options, out io.Writer) error {
	s, err := startServer(ctx, o.dir)
	if err != nil {
		return err
	}
	defer s.close()
	missed := s.phases(ctx, o, out)
	if err := s.finish(out); err != nil {
		missed = append(missed, err)
	}
	peak, err := control(o)
	if err != nil {
		return errors.Join(append(missed, err)...)
	}
	fmt.Fprintln(out, "control: a receiver without a deadline held every connection whose body did not come")
	fmt.Fprintf(out, "control: a receiver with io.ReadAll and no admission reached %d MiB with %d senders\n", peak>>20, o.naiveSenders)
	return errors.Join(missed...)
}

// phases runs the floods in turn and all at once.
func (s *server) phases(ctx context.Context, o options, out io.Writer) (missed []error) {
	large := child{kind: "large", connections: o.large}
	slow := child{kind: "slow", connections: o.slow}
	withheld := child{kind: "withheld", connections: o.slow}
	bad := child{kind: "bad", connections: o.badSenders, deliveries: o.bad}
	for _, p := range []struct {
		name   string
		timed  bool
		floods []child
	}{
		{"no flood", true, nil},
		{fmt.Sprintf("%d senders of 25 MiB bodies", o.large), true, []child{large}},
		{fmt.Sprintf("%d connections of one byte per second", o.slow), true, []child{slow}},
		{fmt.Sprintf("%d bodies that do not come", o.slow), false, []child{withheld}},
		{fmt.Sprintf("%d bad signatures", o.bad), false, []child{bad}},
		{"all at once", false, []child{bad, large, slow}},
	} {
		limit := o.limit
		if p.timed {
			limit = o.hold
		}
		r, err := s.phase(ctx, limit, p.floods)
		if err != nil {
			return append(missed, fmt.Errorf("%s: %w", p.name, err))
		}
		r.print(out, p.name)
		missed = append(missed, r.missed(p.name)...)
	}
	return missed
}
