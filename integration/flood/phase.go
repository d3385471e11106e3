package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// result is what one phase measured.
type result struct {
	took   time.Duration
	peak   int64
	floods tally
	held   int
	good   service
}

// phase runs floods beside the good sender: until the first flood has sent
// all it should, or for a time.
func (s *server) phase(ctx context.Context, limit time.Duration, floods []child) (*result, error) {
	if err := resetPeak(s.p.ID()); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	r := &result{floods: tally{}}
	began := time.Now()
	var mu sync.Mutex
	var errs []error
	var senders sync.WaitGroup
	for i, c := range append(slices.Clone(floods), child{kind: "good"}) {
		senders.Go(func() {
			f, err := s.await(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			r.floods.add(f.Flood)
			r.held += f.Held
			if c.kind == "good" {
				r.good = f.Good
			} else if i == 0 {
				stop()
			}
		})
	}
	senders.Wait()
	r.took = time.Since(began)
	s.good += r.good.Accepted
	s.unsure += r.good.Unsure
	var err error
	if r.peak, err = peak(s.p.ID()); err != nil {
		errs = append(errs, err)
	}
	select {
	case <-s.p.Ended():
		errs = append(errs, errors.New("the process has ended"))
	default:
	}
	return r, errors.Join(errs...)
}

func (r *result) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%s, %s: peak RSS %d MiB; good sender: %d deliveries, %d refused, p50 %s, p99 %s, max %s; flood answers:",
		name, r.took.Round(time.Second), r.peak>>20, len(r.good.Latencies), r.good.Refused,
		r.good.percentile(0.5).Round(100*time.Microsecond), r.good.percentile(0.99).Round(100*time.Microsecond), r.good.percentile(1).Round(100*time.Microsecond))
	for _, status := range slices.Sorted(maps.Keys(r.floods)) {
		fmt.Fprintf(out, " %d×%d", status, r.floods[status])
	}
	fmt.Fprintln(out)
}

// missed returns the bars that the phase missed.
func (r *result) missed(name string) (list []error) {
	if r.peak > memoryBar {
		list = append(list, fmt.Errorf("%s: peak RSS is %d MiB, at most %d", name, r.peak>>20, memoryBar>>20))
	}
	if p := r.good.percentile(0.99); p >= latencyBar {
		list = append(list, fmt.Errorf("%s: the good sender's p99 is %s, under %s wanted", name, p, latencyBar))
	}
	if r.held > 0 {
		list = append(list, fmt.Errorf("%s: %d connections were open after %s", name, r.held, freedIn))
	}
	if n := r.floods[200]; n > 0 {
		list = append(list, fmt.Errorf("%s: %d unsigned deliveries were accepted", name, n))
	}
	return list
}
