package bench

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// secret signs the deliveries of every contestant.
const secret = "benchmark-secret-0123456789abcdef"

// ammunition is what the load is made of: a GitHub push body of a wanted
// size, made unique by a number in it, signed ahead of time so that the load
// generator does not compete for the processor.
type ammunition struct {
	prefix, suffix []byte
	next           atomic.Int64
	macs           []byte // 64 hexadecimal digits per body
}

const serialDigits = 20

// load makes n signed bodies of about size bytes.
func load(size, n int) *ammunition {
	prefix := []byte(`{"ref":"refs/heads/main","before":"0000000000000000000000000000000000000000","after":"`)
	suffix := []byte(`","base_ref":null,"compare":"https://github.example/o/r/compare/0...1","created":false,"deleted":false,"forced":false,` +
		`"head_commit":null,"pusher":{"name":"octo","email":null},"repository":{"id":1,"name":"r","full_name":"o/r","private":false},` +
		`"sender":{"login":"octo","id":1},"commits":[{"id":"1","message":"`)
	end := []byte(`"}]}`)
	filler := max(size-len(prefix)-serialDigits-len(suffix)-len(end), 0)
	words := []byte("the quick brown fox jumps over the lazy dog ")
	for len(suffix) < filler+len(suffix) && filler > 0 {
		n := min(filler, len(words))
		suffix = append(suffix, words[:n]...)
		filler -= n
	}
	a := &ammunition{prefix: prefix, suffix: append(suffix, end...), macs: make([]byte, 0, 64*n)}
	mac := hmac.New(sha256.New, []byte(secret))
	var sum [32]byte
	for i := range n {
		mac.Reset()
		mac.Write(a.body(nil, int64(i)))
		a.macs = hex.AppendEncode(a.macs, mac.Sum(sum[:0]))
	}
	return a
}

// body appends the body with the given serial number.
func (a *ammunition) body(b []byte, serial int64) []byte {
	b = append(b, a.prefix...)
	digits := strconv.FormatInt(serial, 10)
	b = append(b, "00000000000000000000"[:serialDigits-len(digits)]...)
	b = append(b, digits...)
	return append(b, a.suffix...)
}

func (a *ammunition) size() int { return len(a.prefix) + serialDigits + len(a.suffix) }

// request appends the next HTTP request, or reports that there is none left.
func (a *ammunition) request(b []byte) ([]byte, bool) {
	serial := a.next.Add(1) - 1
	if int(serial) >= len(a.macs)/64 {
		return b, false
	}
	b = append(b, "POST /hooks/github HTTP/1.1\r\nHost: bench\r\nUser-Agent: GitHub-Hookshot/bench\r\nContent-Type: application/json\r\n"+
		"X-GitHub-Event: push\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\nX-Hub-Signature-256: sha256="...)
	b = append(b, a.macs[64*serial:64*serial+64]...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(a.size()), 10)
	b = append(b, "\r\n\r\n"...)
	return a.body(b, serial), true
}

// shot is what one run of load measured.
type shot struct {
	Requests  int
	Non2xx    int
	Errors    int
	Seconds   float64
	latencies []time.Duration
}

// rate returns the good answers per second.
func (s *shot) rate() float64 { return float64(s.Requests-s.Non2xx) / s.Seconds }

// percentile returns an exact latency percentile; latencies are sorted.
func (s *shot) percentile(p float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	return s.latencies[min(int(p*float64(len(s.latencies))), len(s.latencies)-1)]
}

// fire sends requests over keep-alive connections in a closed loop: each
// connection waits for its answer before it sends the next request.
func fire(address string, a *ammunition, connections int, d time.Duration) (*shot, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	total := &shot{}
	var failure error
	begin := time.Now()
	end := begin.Add(d)
	for range connections {
		wg.Go(func() {
			s, err := fireOne(address, a, end)
			mu.Lock()
			defer mu.Unlock()
			total.Requests += s.Requests
			total.Non2xx += s.Non2xx
			total.latencies = append(total.latencies, s.latencies...)
			if err != nil {
				total.Errors++
				failure = err
			}
		})
	}
	wg.Wait()
	total.Seconds = time.Since(begin).Seconds()
	slices.Sort(total.latencies)
	if failure != nil {
		return total, fmt.Errorf("load: %d connection(s) failed, one with: %w", total.Errors, failure)
	}
	return total, nil
}

func fireOne(address string, a *ammunition, end time.Time) (*shot, error) {
	s := &shot{}
	c, err := net.Dial("tcp", address)
	if err != nil {
		return s, err
	}
	defer c.Close()
	r := bufio.NewReaderSize(c, 4096)
	var buf []byte
	for time.Now().Before(end) {
		var more bool
		if buf, more = a.request(buf[:0]); !more {
			return s, fmt.Errorf("the prepared bodies ran out")
		}
		sent := time.Now()
		if _, err := c.Write(buf); err != nil {
			return s, err
		}
		status, err := readAnswer(r)
		if err != nil {
			return s, err
		}
		s.latencies = append(s.latencies, time.Since(sent))
		s.Requests++
		if status/100 != 2 {
			s.Non2xx++
		}
	}
	return s, nil
}

// readAnswer reads one HTTP/1.1 answer with a Content-Length.
func readAnswer(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("not an HTTP answer: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("not an HTTP answer: %q", line)
	}
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
	_, err = r.Discard(length)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return status, err
}
