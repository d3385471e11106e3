package subject

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is how to start a process.
type Command struct {
	Path string
	Args []string
	Env  []string // added to the environment
	Dir  string
	Log  string   // file that its output is appended to
	Wrap []string // a program that runs it, with its arguments
}

// Process is one that was started.
type Process struct {
	cmd     *exec.Cmd
	started time.Time
	ended   chan struct{}
	state   *os.ProcessState // set when ended is closed
}

// Start starts a process. Its output goes to a file, so that what it wrote
// last is there however it ended.
func Start(c Command) (*Process, error) {
	out, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	defer out.Close()
	argv := append(append(append([]string{}, c.Wrap...), c.Path), c.Args...)
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), started: time.Now()}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.Dir, out, out
	p.cmd.Env = append(os.Environ(), c.Env...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		_ = p.cmd.Wait() // the state says how it ended
		p.state = p.cmd.ProcessState
		close(p.ended)
	}()
	return p, nil
}

// ID returns the process's id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Started returns when it was started.
func (p *Process) Started() time.Time { return p.started }

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process with SIGKILL, without a chance to clean up, and
// returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.ended
}

// Stop asks the process to end with SIGTERM, and kills it after a time.
func (p *Process) Stop(patience time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("stop process: it was still there after %s", patience)
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("stop process: it exited with %d", code)
	}
	return nil
}

// Killed reports whether the process was ended by SIGKILL. It waits for the
// end.
func (p *Process) Killed() bool {
	<-p.ended
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// ExitCode returns the exit code, -1 when a signal ended the process. It
// waits for the end.
func (p *Process) ExitCode() int {
	<-p.ended
	return p.state.ExitCode()
}

// errGone is returned while waiting for a process that has ended.
var errGone = errors.New("the process has ended")

// WaitReady waits until url answers 200, and returns how long that was after
// the start.
func (p *Process) WaitReady(url string, patience time.Duration) (time.Duration, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(patience); ; {
		res, err := client.Get(url)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return time.Since(p.started), nil
			}
		}
		select {
		case <-p.ended:
			return 0, errGone
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the process was not ready after %s: %v", patience, err)
		}
	}
}

// IsGone reports whether err says that the process has ended.
func IsGone(err error) bool { return errors.Is(err, errGone) }

// FreeAddress returns a loopback address that was free a moment ago.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free address: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// Child returns the id of the process's first child: of what runs under Wrap.
func (p *Process) Child() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.ID(), p.ID()))
	if err != nil {
		return 0, fmt.Errorf("find child: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, errors.New("find child: there is none")
	}
	return strconv.Atoi(fields[0])
}
