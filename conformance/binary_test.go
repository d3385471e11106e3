package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestMain makes a folder for the program, and is the program of the tests
// that need a second process.
func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		os.Exit(holdClaim(path))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ichido-conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = sync.OnceValues(func() (string, error) { return build(filepath.Join(dir, "ichido")) })
	return m.Run()
}

// program builds cmd/ichido when it is first asked for, and returns its path.
var program func() (string, error)

func build(path string) (string, error) {
	// A result of this test must not come from a cache when the program has
	// changed: the go command watches what a test looks at.
	for _, dir := range []string{"../cmd", "../internal"} {
		if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("go", "build", "-o", path, "../cmd/ichido")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/ichido: %w\n%s", err, out)
	}
	return path, nil
}

// command returns a call of the program in a folder, with nothing in its
// environment but env.
func command(t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"HOME=" + dir, "NO_COLOR=1"}, env...)
	return cmd
}

// output is what a finished call of the program left.
type output struct {
	code           int
	stdout, stderr string
}

// call runs the program to its end.
func call(t *testing.T, dir string, env []string, args ...string) output {
	t.Helper()
	cmd := command(t, dir, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// server is a running `ichido serve`.
type server struct {
	cmd   *exec.Cmd
	url   string // of the ingest listener
	log   *buffer
	ended chan error
}

// start runs `ichido serve` until it says where it listens.
func start(t *testing.T, dir string, env []string, args ...string) *server {
	t.Helper()
	s := &server{cmd: command(t, dir, env, append([]string{"serve"}, args...)...), log: &buffer{}, ended: make(chan error, 1)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		s.read(stderr, address)
		s.ended <- s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
	})
	at := await(t, address, "the server to listen")
	if at == "" {
		t.Fatalf("the server ended: %s", s.log)
	}
	s.url = "http://" + at
	return s
}

// read copies the log, and sends the address of the ingest listener, or ""
// when the log ends without one.
func (s *server) read(from io.Reader, address chan<- string) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		s.log.Write(append(lines.Bytes(), '\n'))
		var entry struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "receiving deliveries" {
			address <- entry.Address
		}
	}
	select {
	case address <- "":
	default:
	}
}

// stop sends a signal and returns the exit code, -1 when the signal itself
// ended the process.
func (s *server) stop(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := await(t, s.ended, "the server to end")
	s.ended <- err
	client.CloseIdleConnections() // another one may listen on its port
	return s.cmd.ProcessState.ExitCode()
}

// eventList is what `ichido events --json` prints of stored events.
type eventList struct {
	Events []struct {
		ID, Key, State, Outcome, Cause string
		Attempts                       int
	}
}

// events lists what is stored in a database, oldest first.
func events(t *testing.T, dir, database string) (list eventList) {
	t.Helper()
	out := call(t, dir, nil, "events", "--json", "--store", "sqlite:"+database)
	if out.code != 0 {
		t.Fatalf("list events: exit code %d, %s", out.code, out.stderr)
	}
	if err := json.Unmarshal([]byte(out.stdout), &list); err != nil {
		t.Fatal(err)
	}
	for i, j := 0, len(list.Events)-1; i < j; i, j = i+1, j-1 {
		list.Events[i], list.Events[j] = list.Events[j], list.Events[i]
	}
	return list
}

// write writes a file for the program and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.TrimPrefix(text, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
