package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// freedIn is how long a connection may stay open whose body does not come: the
// body's own time, and what net/http waits for the rest of it, with some room.
const freedIn = 25 * time.Second

// withheldBodies are requests whose body does not come, or comes a byte per
// second: each of them has another reason not to be read to its end.
var withheldBodies = [...]struct {
	line string
	drip bool
}{
	{"POST /nowhere", false},
	{"POST /nowhere", true},
	{"PUT " + hook, false},
	{"PUT " + hook, true},
	{"POST " + hook, false},
}

// withheld opens n connections with a request each, keeps them open after the
// answer, and returns how many of them the server had not closed in time, or
// when ctx ended.
func withheld(ctx context.Context, address string, n int, patience time.Duration) (t tally, held int) {
	var open atomic.Int64
	t = each(n, func(i int) tally {
		status, closed := withhold(ctx, address, i, patience)
		if !closed {
			open.Add(1)
		}
		return tally{status: 1}
	})
	return t, int(open.Load())
}

// withhold sends one such request, and waits for its answer and for the end of
// the connection.
func withhold(ctx context.Context, address string, i int, patience time.Duration) (status int, closed bool) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return 0, true
	}
	defer c.Close()
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })
	body := withheldBodies[i%len(withheldBodies)]
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: flood\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n", body.line)
	if body.drip {
		go func() {
			for err := error(nil); err == nil && ctx.Err() == nil; {
				wait(ctx, time.Second)
				_, err = c.Write([]byte("x"))
			}
		}()
	}
	in := bufio.NewReader(c)
	if res, err := http.ReadResponse(in, nil); err == nil {
		status = res.StatusCode
		io.Copy(io.Discard, res.Body)
	}
	_, err = io.Copy(io.Discard, in)
	return status, !errors.Is(err, os.ErrDeadlineExceeded)
}
