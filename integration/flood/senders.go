package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts answers by status; 0 is a connection that broke without one.
type tally map[int]int

func (t tally) add(other tally) {
	for status, n := range other {
		t[status] += n
	}
}

// each runs n senders and adds up what they counted.
func each(n int, send func(i int) tally) tally {
	total := tally{}
	var mu sync.Mutex
	var senders sync.WaitGroup
	for i := range n {
		senders.Go(func() {
			t := send(i)
			mu.Lock()
			defer mu.Unlock()
			total.add(t)
		})
	}
	senders.Wait()
	return total
}

const wrongMAC = "sha256=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func head(length int) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: flood\r\nContent-Type: application/json\r\nX-Github-Event: push\r\n"+
		"X-Hub-Signature-256: %s\r\nContent-Length: %d\r\n\r\n", hook, wrongMAC, length)
}

// large sends bodies of 25 MiB from n connections, again and again.
func large(ctx context.Context, address string, n int) tally {
	chunk := bytes.Repeat([]byte("x"), 256<<10)
	return each(n, func(int) tally {
		t := tally{}
		for ctx.Err() == nil {
			t[exchange(ctx, address, func(c net.Conn) {
				if _, err := c.Write(head(bodySize)); err != nil {
					return
				}
				for sent := 0; sent < bodySize; sent += len(chunk) {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			})]++
			wait(ctx, 500*time.Millisecond)
		}
		return t
	})
}

// slow sends one byte per second over n connections: in the header, in a
// small body, in a large one. A connection that is closed is opened again.
func slow(ctx context.Context, address string, n int) tally {
	return each(n, func(i int) tally {
		t := tally{}
		wait(ctx, time.Duration(i%1000)*time.Millisecond)
		for ctx.Err() == nil {
			t[exchange(ctx, address, func(c net.Conn) {
				start, drip := head([]int{1, 2000, bodySize}[i%3]), []byte("x")
				if i%3 == 0 {
					start, drip = []byte("POST "+hook+" HTTP/1.1\r\nHost: flood\r\nX-A: "), []byte("a")
				}
				if _, err := c.Write(start); err != nil {
					return
				}
				for ctx.Err() == nil {
					wait(ctx, time.Second)
					if _, err := c.Write(drip); err != nil {
						return
					}
				}
			})]++
		}
		return t
	})
}

// bad sends deliveries with a bad signature over n keep-alive connections.
func bad(ctx context.Context, address string, n, deliveries int) tally {
	var left atomic.Int64
	left.Store(int64(deliveries))
	body := goodBody(0)
	request := append(head(len(body)), body...)
	return each(n, func(int) tally {
		t := tally{}
		var c net.Conn
		var r *bufio.Reader
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		for left.Add(-1) >= 0 && ctx.Err() == nil {
			if c == nil {
				var err error
				if c, err = net.DialTimeout("tcp", address, 5*time.Second); err != nil {
					t[0]++
					c = nil
					continue
				}
				r = bufio.NewReader(c)
			}
			status, open := once(c, r, request)
			t[status]++
			if !open {
				c.Close()
				c = nil
			}
		}
		return t
	})
}

// once sends one request and reads its answer.
func once(c net.Conn, r *bufio.Reader, request []byte) (status int, open bool) {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(request); err != nil {
		return 0, false
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, false
	}
	var sink [1024]byte
	for err == nil {
		_, err = res.Body.Read(sink[:])
	}
	return res.StatusCode, !res.Close
}

// exchange opens a connection, writes to it and reads at the same time, and
// returns the status of the answer, 0 for none.
func exchange(ctx context.Context, address string, write func(net.Conn)) int {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		wait(ctx, 100*time.Millisecond)
		return 0
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	answered := make(chan int, 1)
	go func() {
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		c.SetWriteDeadline(time.Now()) // nothing more to say
		if err != nil {
			answered <- 0
			return
		}
		answered <- res.StatusCode
	}()
	write(c)
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	return <-answered
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
