package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// evidence is what a trace of system calls says about acknowledgements.
type evidence struct {
	acknowledged int // 2xx answers to a POST
	unproven     int // those without a flush of the log between request and answer
	afterFailure int // those to requests that were read after a flush had failed
	flushes      int // flushes of the log that succeeded
	failed       int
}

// tracer reads the lines of strace -f -yy in their order. A call that another
// thread's line interrupts has two lines: its begin and its end.
type tracer struct {
	evidence
	pending map[string]call // by thread: calls that have begun
	begun   map[string]int  // connection: line at which the bytes of its request had been read
	post    map[string]bool // connection: the request is a POST
	flushed int             // the latest begin among the flushes that have ended well
	failure int             // line of the first failed flush, 0 for none
	line    int
}

type call struct {
	name, target, text string
	line               int
}

var (
	whole   = regexp.MustCompile(`^(\d+)\s+(\w+)\(\d+<((?:->|[^<>])*)>(, .*|\)?\s*=.*|\) .*)$`)
	started = regexp.MustCompile(`^(\d+)\s+(\w+)\(\d+<((?:->|[^<>])*)>(.*)<unfinished \.\.\.>$`)
	resumed = regexp.MustCompile(`^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$`)
	result  = regexp.MustCompile(`= (-?\d+)[^=]*$`)
)

// readTrace judges a trace.
func readTrace(path string) (*evidence, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	t := &tracer{pending: map[string]call{}, begun: map[string]int{}, post: map[string]bool{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		t.line++
		t.read(lines.Text())
	}
	return &t.evidence, lines.Err()
}

func (t *tracer) read(line string) {
	if m := started.FindStringSubmatch(line); m != nil {
		t.pending[m[1]] = call{name: m[2], target: m[3], text: m[4], line: t.line}
		if m[2] == "write" { // what it writes is on its way
			t.answer(m[3], m[4])
		}
		return
	}
	if m := resumed.FindStringSubmatch(line); m != nil {
		c := t.pending[m[1]]
		delete(t.pending, m[1])
		if c.name == m[2] && c.name != "write" {
			c.text += m[3]
			t.ended(c)
		}
		return
	}
	if m := whole.FindStringSubmatch(line); m != nil {
		if m[2] == "write" {
			t.answer(m[3], m[4])
			return
		}
		t.ended(call{name: m[2], target: m[3], text: m[4], line: t.line})
	}
}

// ended takes a read or a flush that has ended.
func (t *tracer) ended(c call) {
	m := result.FindStringSubmatch(c.text)
	if m == nil {
		return
	}
	failed := strings.HasPrefix(m[1], "-")
	switch {
	case c.name == "read" && strings.HasPrefix(c.target, "TCP:") && !failed && m[1] != "0":
		t.begun[c.target] = t.line
		if strings.Contains(c.text, `"POST `) {
			t.post[c.target] = true
		} else if strings.Contains(c.text, `"GET `) {
			t.post[c.target] = false
		}
	case (c.name == "fsync" || c.name == "fdatasync") && failed:
		t.failed++
		if t.failure == 0 {
			t.failure = t.line
		}
	case (c.name == "fsync" || c.name == "fdatasync") && strings.HasSuffix(c.target, "-wal"):
		t.flushes++
		t.flushed = max(t.flushed, c.line)
	}
}

// answer judges bytes that are written to a connection.
func (t *tracer) answer(connection, text string) {
	if !strings.Contains(text, `"HTTP/1.1 2`) || !t.post[connection] {
		return
	}
	t.acknowledged++
	if t.flushed <= t.begun[connection] {
		t.unproven++
	}
	if t.failure != 0 && t.begun[connection] > t.failure {
		t.afterFailure++
	}
}
