// Package bench measures ichido against a floor and against what people write
// themselves, in one run on one machine, so that the ratios hold whatever else
// the machine does.
//
// Each contestant is a process of its own. Contestants alternate, and the
// median of the rounds counts. It judges nothing but the ratios it prints.
package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Options are the protocol of a run.
type Options struct {
	Rounds      int
	Duration    time.Duration // of one contestant in one round
	Connections int
	Dir         string                                                      // on the disk to measure
	Command     func(ctx context.Context, contestant, dir string) *exec.Cmd // starts a contestant
	Progress    io.Writer
}

// Result is one contestant's median round in one course.
type Result struct {
	Course     string  `json:"course"`
	Contestant string  `json:"contestant"`
	Rate       float64 `json:"rate"` // 2xx per second
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	CPU        float64 `json:"cpu_us"` // of the server's process, per 2xx
	RSS        float64 `json:"rss_mib"`
	PerCommit  float64 `json:"events_per_commit,omitempty"`
	Flushes    float64 `json:"flushes_per_commit,omitempty"`
	Pending    int     `json:"pending"` // not yet worked when the load ended
	Non2xx     int     `json:"non_2xx"`
	Requests   int     `json:"requests"`
	Journal    string  `json:"journal,omitempty"`
}

// Report is everything that a run measured.
type Report struct {
	Go       string        `json:"go"`
	CPUs     int           `json:"cpus"`
	Sync     time.Duration `json:"-"`
	SyncMS   float64       `json:"fdatasync_ms"` // median of 1,000 times 4 KiB appended and synced
	Results  []Result      `json:"results"`
	Ratios   []Ratio       `json:"ratios"`
	Protocol string        `json:"protocol"`
}

// Ratio is one figure that is comparable between machines.
type Ratio struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Bar    float64 `json:"bar"`
	AtMost bool    `json:"at_most"` // the bar is an upper one
}

// Met reports whether the ratio meets its bar.
func (r Ratio) Met() bool {
	if r.AtMost {
		return r.Value <= r.Bar
	}
	return r.Value >= r.Bar
}

// course is one kind of load and who takes part.
type course struct {
	name        string
	size        int
	connections int
	contestants []string
}

// Run measures every course.
func Run(ctx context.Context, o Options) (*Report, error) {
	courses := []course{
		{"1.3 KB", 1300, o.Connections, []string{floor, inbox, prototype, single}},
		{"20 KB", 20_000, o.Connections, []string{floor, inbox, prototype}},
		{"1.3 KB alone", 1300, 1, []string{floor, inbox}},
	}
	report := &Report{
		Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Protocol: fmt.Sprintf("%d round(s) of %s, contestants alternate, median; %d connections, closed loop, keep-alive, unique pre-signed GitHub bodies",
			o.Rounds, o.Duration, o.Connections),
	}
	var err error
	if report.Sync, err = syncOnce(o.Dir, 1000); err != nil {
		return nil, err
	}
	report.SyncMS = milliseconds(report.Sync)
	for _, c := range courses {
		results, err := c.run(ctx, &o)
		if err != nil {
			return nil, fmt.Errorf("course %s: %w", c.name, err)
		}
		report.Results = append(report.Results, results...)
	}
	report.Ratios = report.ratios()
	return report, nil
}

// run lets the contestants of a course alternate and returns their medians.
func (c *course) run(ctx context.Context, o *Options) ([]Result, error) {
	rounds := map[string][]Result{}
	for round := range o.Rounds {
		for _, name := range c.contestants {
			fmt.Fprintf(o.Progress, "%s, round %d of %d: %s\n", c.name, round+1, o.Rounds, name)
			r, err := c.measure(ctx, o, name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rounds[name] = append(rounds[name], r)
		}
	}
	var results []Result
	for _, name := range c.contestants {
		list := rounds[name]
		slices.SortFunc(list, func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) })
		results = append(results, list[len(list)/2])
	}
	return results, nil
}

// measure starts a contestant, warms it up, and measures one round.
func (c *course) measure(ctx context.Context, o *Options, name string) (r Result, err error) {
	dir, err := os.MkdirTemp(o.Dir, "round")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	child, err := startChild(o.Command(ctx, name, dir))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, child.stop()) }()
	warm := min(o.Duration/4, 2*time.Second)
	ammo := load(c.size, int((o.Duration+warm).Seconds()*mostPerSecond)+10_000)
	if _, err := fire(child.address, ammo, c.connections, warm); err != nil {
		return r, err
	}
	before, flushed := child.mark(), flushes(dir)
	s, err := fire(child.address, ammo, c.connections, o.Duration)
	if err != nil {
		return r, err
	}
	after, flushedAfter := child.mark(), flushes(dir)
	if child.err != nil {
		return r, child.err
	}
	good := float64(max(s.Requests-s.Non2xx, 1))
	r = Result{
		Course: c.name, Contestant: name, Rate: s.rate(),
		P50: milliseconds(s.percentile(0.5)), P99: milliseconds(s.percentile(0.99)), P999: milliseconds(s.percentile(0.999)),
		CPU: float64((after.CPU - before.CPU).Microseconds()) / good, RSS: float64(after.RSS) / (1 << 20),
		Pending: after.Pending, Non2xx: s.Non2xx, Requests: s.Requests, Journal: after.Journal,
	}
	if commits := float64(after.Commits - before.Commits); commits > 0 {
		r.PerCommit = good / commits
		if flushed >= 0 {
			r.Flushes = float64(flushedAfter-flushed) / commits
		}
	}
	if name == inbox && after.Stored-before.Stored != s.Requests-s.Non2xx {
		return r, fmt.Errorf("%d events were acknowledged and %d stored", s.Requests-s.Non2xx, after.Stored-before.Stored)
	}
	return r, nil
}

// mostPerSecond bounds how many bodies are prepared per second of load.
const mostPerSecond = 80_000

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// child is a contestant in its process.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	out     *bufio.Reader
	address string
	err     error // the first failure of mark
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start contestant: %w", err)
	}
	c.out = bufio.NewReader(stdout)
	line, err := c.out.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("contestant said nothing: %w", err), c.stop())
	}
	c.address = line[:len(line)-1]
	return c, nil
}

// mark asks the contestant for its figures.
func (c *child) mark() mark {
	var m mark
	if c.err != nil {
		return m
	}
	if _, c.err = io.WriteString(c.stdin, "mark\n"); c.err != nil {
		return m
	}
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	c.err = err
	return m
}

func (c *child) stop() error {
	return errors.Join(c.stdin.Close(), c.cmd.Wait())
}

// Here returns a folder for a run's data below dir.
func Here(dir string) (string, error) {
	return os.MkdirTemp(filepath.Clean(dir), "ichido-bench")
}
