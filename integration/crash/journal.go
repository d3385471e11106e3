package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
)

// journal is the oracle's own log. A line that append returned for is on the
// disk: lines of several senders share one fsync.
type journal struct {
	path string
	f    *os.File

	mu      sync.Mutex
	buf     bytes.Buffer
	flushed *sync.Cond
	written int64 // lines appended
	durable int64 // lines that are on the disk
	err     error
	syncing bool
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the oracle's log: %w", err)
	}
	j := &journal{path: path, f: f}
	j.flushed = sync.NewCond(&j.mu)
	return j, nil
}

// note adds a line without waiting for the disk.
func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.buf, format+"\n", args...)
	j.written++
}

// append adds a line and returns when it is on the disk.
func (j *journal) append(format string, args ...any) error {
	j.note(format, args...)
	return j.sync()
}

// sync returns when all lines added before it are on the disk.
func (j *journal) sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for mine := j.written; j.durable < mine && j.err == nil; {
		if j.syncing {
			j.flushed.Wait()
			continue
		}
		j.syncing = true
		lines, upTo := bytes.Clone(j.buf.Bytes()), j.written
		j.buf.Reset()
		j.mu.Unlock()
		_, err := j.f.Write(lines)
		if err == nil {
			err = j.f.Sync()
		}
		j.mu.Lock()
		j.syncing, j.durable = false, upTo
		if err != nil {
			j.err = fmt.Errorf("write the oracle's log: %w", err)
		}
		j.flushed.Broadcast()
	}
	return j.err
}

func (j *journal) close() error { return j.f.Close() }

// Lines of the log: "S hash body source n variant" before an event is sent,
// "F hash body" for a forged one, "A hash status" after it was answered,
// "E hash attempt" for an effect.

func (j *journal) sent(e *event, do action) error {
	if do == sendForged {
		j.note("F %x %x", e.hash, e.body)
		return nil
	}
	return j.append("S %x %x %s %d %s", e.hash, e.body, e.source.name, e.n, e.variant)
}

func (j *journal) answered(e *event, status int) { j.note("A %x %d", e.hash, status) }

func (j *journal) effect(hash [hashedLength]byte, attempt int) { j.note("E %x %d", hash, attempt) }

// testimony is what the log says: the bodies that were sent, and the
// identities that were acknowledged.
type testimony struct {
	bodies  map[[hashedLength]byte]digest
	acked   map[[hashedLength]byte]bool
	effects map[[hashedLength]byte]int
}

// read reads the log back from the disk.
func (j *journal) read() (*testimony, error) {
	if err := j.sync(); err != nil {
		return nil, err
	}
	f, err := os.Open(j.path)
	if err != nil {
		return nil, fmt.Errorf("read the oracle's log: %w", err)
	}
	defer f.Close()
	t := &testimony{bodies: map[[hashedLength]byte]digest{}, acked: map[[hashedLength]byte]bool{}, effects: map[[hashedLength]byte]int{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if err := t.line(strings.Fields(lines.Text())); err != nil {
			return nil, err
		}
	}
	return t, lines.Err()
}

func (t *testimony) line(words []string) error {
	var hash [hashedLength]byte
	if len(words) < 3 {
		return fmt.Errorf("read the oracle's log: a line of %d words", len(words))
	}
	if n, err := hex.Decode(hash[:], []byte(words[1])); err != nil || n != len(hash) {
		return fmt.Errorf("read the oracle's log: %q is no identity", words[1])
	}
	switch words[0] {
	case "S":
		var body digest
		if n, err := hex.Decode(body[:], []byte(words[2])); err != nil || n != len(body) {
			return fmt.Errorf("read the oracle's log: %q is no digest", words[2])
		}
		t.bodies[hash] = body
	case "A":
		if words[2][0] == '2' || words[2] == "409" {
			t.acked[hash] = true
		}
	case "E":
		t.effects[hash]++
	}
	return nil
}
