package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The good sender sends this often, over connections that it opens again for
// every fourth delivery.
const (
	pace        = 20 * time.Millisecond
	perConn     = 4
	patience    = 10 * time.Second
	goodSenders = 64
)

// service is what the good sender got.
type service struct {
	Accepted  int
	Unsure    int             // no answer came back
	Refused   int             // those, and answers that were not 200
	Latencies []time.Duration // sorted; refused ones count as the worst
}

func (s *service) percentile(p float64) time.Duration {
	if len(s.Latencies) == 0 {
		return patience
	}
	return s.Latencies[min(int(p*float64(len(s.Latencies))), len(s.Latencies)-1)]
}

// good sends genuine deliveries at a steady pace until ctx ends. Latency
// counts from the time at which a delivery was due.
func good(ctx context.Context, address string) (s service) {
	var mu sync.Mutex
	var serial atomic.Int64
	var senders sync.WaitGroup
	begin := time.Now()
	for range goodSenders {
		senders.Go(func() {
			g := goodConn{address: address}
			defer g.close()
			for {
				n := serial.Add(1)
				due := begin.Add(time.Duration(n) * pace)
				wait(ctx, time.Until(due))
				if ctx.Err() != nil {
					return
				}
				status := g.send(begin.UnixNano() + n)
				took := time.Since(due)
				mu.Lock()
				s.count(status, took)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	slices.Sort(s.Latencies)
	return s
}

func (s *service) count(status int, took time.Duration) {
	switch status {
	case 200:
		s.Accepted++
	case 0:
		s.Unsure++
		fallthrough
	default:
		s.Refused++
		took = patience
	}
	s.Latencies = append(s.Latencies, took)
}

// goodConn is one connection of the good sender.
type goodConn struct {
	address string
	c       net.Conn
	in      *bufio.Reader
	sent    int
}

func (g *goodConn) close() {
	if g.c != nil {
		g.c.Close()
	}
	g.c, g.sent = nil, 0
}

// send sends one delivery and returns its status, 0 for none.
func (g *goodConn) send(serial int64) int {
	if g.c == nil {
		c, err := net.DialTimeout("tcp", g.address, patience)
		if err != nil {
			return 0
		}
		g.c, g.in = c, bufio.NewReader(c)
	}
	status, open := once(g.c, g.in, goodRequest(serial))
	if g.sent++; !open || g.sent == perConn {
		g.close()
	}
	return status
}

// goodBody returns a body of 1.3 KB that only this serial has.
func goodBody(serial int64) []byte {
	b := fmt.Appendf(nil, `{"zen":"Speak like a human.","hook_id":%d,"filler":"`, serial)
	for len(b) < 1300 {
		b = append(b, "the quick brown fox jumps over the lazy dog "...)
	}
	return append(b, `"}`...)
}

func goodRequest(serial int64) []byte {
	body := goodBody(serial)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: flood\r\nContent-Type: application/json\r\nX-Github-Event: flood_test\r\n"+
		"X-Hub-Signature-256: sha256=%s\r\nContent-Length: %d\r\n\r\n", hook, hex.EncodeToString(mac.Sum(nil)), len(body))
	return append(b, body...)
}
