// Secrecy sends marked secrets, tokens and signatures through the real binary,
// and searches everything that comes out of it for them: replies, log,
// metrics, admin replies, forwards, commands, and the database.
//
// It does not look at timing, nor at the memory of the process.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ichido.dev/ichido/integration/internal/subject"
)

// Canaries beside those of the sources.
const (
	adminToken      = "c9-admin-token-06f5e4d3c2b1"
	destinationPath = "/c10-destination-f5e4d3c2b1a0"
)

func main() {
	requests := flag.Int("requests", 100_000, "deliveries, good and refused")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of everything that is drawn")
	dir := flag.String("dir", "", "folder for the data; default: a temporary one")
	flag.Parse()
	if err := run(context.Background(), *requests, *seed, *dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "secrecy:", err)
		os.Exit(1)
	}
}

// run sends, collects every output, and searches it; then it searches for
// what is meant to be seen.
func run(ctx context.Context, requests int, seed uint64, parent string, out io.Writer) error {
	dir, err := os.MkdirTemp(parent, "secrecy-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(out, "seed %d\n", seed)
	marked, places, t, err := collect(ctx, dir, requests, seed)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d deliveries, answers %v; %d marks\n", requests, t.statuses, len(marked))
	for _, p := range places {
		bytes, hits, _ := p.search(marked)
		fmt.Fprintf(out, "  %s: %d bytes, %d leaks\n", p.name, bytes, hits)
	}
	leaks := marked.leaks(places)
	return errors.Join(errors.Join(leaks...), control(places, t, out))
}

// control searches for what is meant to be there: a search that finds none of
// it would not find a leak.
func control(places []*place, t *traffic, out io.Writer) error {
	shown := canaries{}
	shown.add("the name of a source", planted)
	for _, reply := range t.replies.texts {
		if _, id, found := strings.Cut(string(reply), `"id":"`); found {
			shown.add("the id of an event", id[:2*chunk-3])
			break
		}
	}
	var errs []error
	found := 0
	for _, p := range places {
		if p.name == "stored BLOBs" {
			continue // nothing that is shown is in one
		}
		if _, hits, _ := p.search(shown); hits == 0 {
			errs = append(errs, fmt.Errorf("what was planted in %s was not found: this harness proves nothing", p.name))
		} else {
			found++
		}
	}
	fmt.Fprintf(out, "control: what was planted was found in %d of %d places\n", found, len(places)-1)
	return errors.Join(errs...)
}

// collect runs the binary under the traffic and returns what must be nowhere,
// and all its outputs.
func collect(ctx context.Context, dir string, requests int, seed uint64) (canaries, []*place, *traffic, error) {
	s, err := start(ctx, dir)
	if err != nil {
		return nil, nil, nil, err
	}
	defer s.p.Kill()
	t := &traffic{
		base: "http://" + s.ingest, endpoints: s.endpoints, marked: s.marked, statuses: map[int]int{}, replies: place{name: "replies"},
		client: &http.Client{
			Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if err := t.send(ctx, requests, seed); err != nil {
		return nil, nil, nil, err
	}
	if err := s.settled(); err != nil {
		return nil, nil, nil, err
	}
	places, err := s.outputs()
	if err != nil {
		return nil, nil, nil, err
	}
	return t.marked, append([]*place{&t.replies}, places...), t, nil
}

// service is the binary with its files.
type service struct {
	dir, binary, config string
	ingest, admin       string
	endpoints           []endpoint
	marked              canaries
	dest                *destination
	p                   *subject.Process
}

func start(ctx context.Context, dir string) (*service, error) {
	s := &service{dir: dir, config: filepath.Join(dir, "ichido.yaml"), endpoints: endpoints(), marked: canaries{}}
	var err error
	if s.binary, err = subject.Build(ctx, dir); err != nil {
		return nil, err
	}
	if s.dest, err = startDestination(); err != nil {
		return nil, err
	}
	if s.ingest, err = subject.FreeAddress(); err != nil {
		return nil, err
	}
	if s.admin, err = subject.FreeAddress(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.config, []byte(s.configuration()), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	s.p, err = subject.Start(subject.Command{Path: s.binary, Args: []string{"serve", "--verbose", "--config", s.config}, Dir: dir, Log: s.log()})
	if err != nil {
		return nil, err
	}
	if _, err = s.p.WaitReady("http://"+s.ingest+"/readyz", 10*time.Second); err != nil {
		s.p.Kill()
		text, _ := os.ReadFile(s.log())
		return nil, fmt.Errorf("start the binary: %w\n%s", err, text)
	}
	return s, nil
}

func (s *service) log() string { return filepath.Join(s.dir, "log") }
func (s *service) db() string  { return filepath.Join(s.dir, "events.db") }

// configuration returns the configuration, and marks every secret in it.
func (s *service) configuration() string {
	hash := sha256.Sum256([]byte(adminToken))
	key := []byte("c11-key-that-signs-forwards-e4d3")
	signing := "whsec_" + base64.StdEncoding.EncodeToString(key)
	s.marked.add("the admin token", adminToken)
	s.marked.add("the hash of the admin token", hex.EncodeToString(hash[:]))
	s.marked.add("the destination's path", destinationPath)
	s.marked.addBytes("the key that signs forwards", key)
	s.marked.add("the key that signs forwards, as configured", signing)
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %q, tokens: [%q]}\nstore: %q\nsigning: [%q]\nsources:\n",
		s.ingest, s.admin, "sha256:"+hex.EncodeToString(hash[:]), "sqlite:"+s.db(), signing)
	for i := range s.endpoints {
		e := &s.endpoints[i]
		b.WriteString(e.config(s.dest.base + destinationPath))
		s.marked.addBytes("the secret of "+e.name, []byte(e.secret))
		if e.pathToken != "" {
			s.marked.addBytes("the path token of "+e.name, []byte(e.pathToken))
		}
	}
	return b.String()
}

// settled waits until nothing is left to be forwarded.
func (s *service) settled() error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		pending, err := ask(s.admin, "/v1/events?state=pending&limit=1", adminToken)
		if err != nil {
			return err
		}
		claimed, err := ask(s.admin, "/v1/events?state=claimed&limit=1", adminToken)
		if err != nil {
			return err
		}
		if !strings.Contains(string(pending)+string(claimed), `"id"`) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("events are still to be forwarded after two minutes")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// outputs stops the binary and returns all that it put out.
func (s *service) outputs() ([]*place, error) {
	metrics, err := ask(s.admin, "/metrics", adminToken)
	if err != nil {
		return nil, err
	}
	admin, err := adminReplies(s.admin, adminToken)
	if err != nil {
		return nil, err
	}
	if err := s.p.Stop(20 * time.Second); err != nil {
		return nil, err
	}
	log, err := files("log", s.log())
	if err != nil {
		return nil, err
	}
	texts, blobs, err := stored(s.db())
	if err != nil {
		return nil, err
	}
	raw, err := files("database files", s.db(), s.db()+"-wal")
	if err != nil {
		return nil, err
	}
	shown, err := commands(s.binary, s.config)
	if err != nil {
		return nil, err
	}
	return []*place{log, {name: "metrics", texts: [][]byte{metrics}}, admin, &s.dest.got, texts, blobs, raw, shown}, nil
}
