// Start checks what a restart costs: the binary is static and small, and with
// 1,000,000 stored events, after a kill, it is ready in less than two seconds.
//
// It does not measure how fast the backlog is worked.
package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // to fill the database

	"ichido.dev/ichido"
	"ichido.dev/ichido/integration/internal/subject"
	"ichido.dev/ichido/store/sqlite"
)

const (
	secret  = "start-secret-5b1e7c2a9d8f4036"
	maxSize = 25 << 20 // bytes of the binary
)

// options are the size of a run.
type options struct {
	events  int
	pending int           // of these, not worked yet
	starts  int           // each after a kill
	limit   time.Duration // from the start of the process to its first "ready"
	dir     string
}

func main() {
	o := options{}
	flag.IntVar(&o.events, "events", 1_000_000, "stored events")
	flag.IntVar(&o.pending, "pending", 100_000, "how many of them are not worked yet")
	flag.IntVar(&o.starts, "starts", 5, "starts, each after a kill")
	flag.DurationVar(&o.limit, "limit", 2*time.Second, "longest time to be ready")
	flag.StringVar(&o.dir, "dir", "", "folder for the data; default: a temporary one")
	flag.Parse()
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	work, err := os.MkdirTemp(o.dir, "start-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(work)
	path, err := subject.Build(ctx, work)
	if err != nil {
		return err
	}
	errs := []error{checkBinary(path, out)}
	db := filepath.Join(work, "events.db")
	if err := fill(ctx, db, o, out); err != nil {
		return err
	}
	slowest, err := starts(path, work, db, o.starts)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d starts after a kill, slowest until ready: %s\n", o.starts, slowest.Round(time.Millisecond))
	errs = append(errs, within(slowest, o.limit))
	// The control: no process is ready in no time.
	if within(slowest, time.Microsecond) == nil {
		errs = append(errs, errors.New("control: a limit of a microsecond was kept"))
	} else {
		fmt.Fprintln(out, "control: a limit of a microsecond is not kept, and said so")
	}
	return errors.Join(errs...)
}

func within(took, limit time.Duration) error {
	if took > limit {
		return fmt.Errorf("the slowest start took %s, more than %s", took, limit)
	}
	return nil
}

// checkBinary reads whether the binary is static, and how large it is.
func checkBinary(path string, out io.Writer) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read the binary: %w", err)
	}
	defer f.Close()
	static := true
	for _, p := range f.Progs {
		static = static && p.Type != elf.PT_INTERP && p.Type != elf.PT_DYNAMIC
	}
	fmt.Fprintf(out, "binary: %.1f MB, static: %t\n", float64(info.Size())/1e6, static)
	if !static || info.Size() > maxSize {
		return fmt.Errorf("the binary has %d bytes, static: %t; want at most %d, static", info.Size(), static, maxSize)
	}
	return nil
}

// fill stores events of about the size that senders have, through the store.
func fill(ctx context.Context, path string, o options, out io.Writer) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Options{Capacity: 2 * o.events})
	if err != nil {
		return err
	}
	rng := rand.NewChaCha8([32]byte{1})
	records := make([]ichido.Record, 0, 500)
	for n := 0; n < o.events; {
		records = records[:0]
		for ; len(records) < cap(records) && n < o.events; n++ {
			records = append(records, record(n, rng, n >= o.events-o.pending))
		}
		verdicts, err := store.Put(ctx, records)
		if err != nil {
			return err
		}
		for _, v := range verdicts {
			if v != ichido.Accepted {
				return fmt.Errorf("fill: an event was %s", v)
			}
		}
	}
	if err := store.Close(); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil {
		fmt.Fprintf(out, "%d events stored, %d of them pending, %d MB\n", o.events, o.pending, info.Size()>>20)
	}
	return err
}

func record(n int, rng *rand.ChaCha8, pending bool) ichido.Record {
	body := make([]byte, 1300)
	rng.Read(body)
	binary.LittleEndian.PutUint64(body, uint64(n))
	sum := sha256.Sum256(body)
	r := ichido.Record{
		Hash: [16]byte(sum[:16]), Source: "github", Key: fmt.Sprintf("%x", sum), Fingerprint: sum, Type: "push",
		Strength: ichido.Verified, Scheme: "default", ReceivedAt: time.Now(), Body: body, Header: []byte("X-Github-Event: push\r\n"),
		State: ichido.Done, Outcome: ichido.Forwarded,
	}
	if pending {
		r.State, r.Outcome = ichido.Pending, ""
	}
	return r
}

// starts starts the binary n times, kills it each time, and returns the
// longest time from start to ready.
func starts(path, work, db string, n int) (slowest time.Duration, err error) {
	address, err := subject.FreeAddress()
	if err != nil {
		return 0, err
	}
	admin, err := subject.FreeAddress()
	if err != nil {
		return 0, err
	}
	// Nobody listens where events go: they stay what they are.
	nowhere, err := subject.FreeAddress()
	if err != nil {
		return 0, err
	}
	config := fmt.Sprintf("listen: %s\nadmin: {listen: %q}\nstore: %q\nsources:\n  - {name: github, provider: github, secrets: [%s], deliver: {to: \"http://%s/\"}}\n",
		address, admin, "sqlite:"+db, secret, nowhere)
	file := filepath.Join(work, "ichido.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return 0, fmt.Errorf("write configuration: %w", err)
	}
	for range n {
		p, err := subject.Start(subject.Command{Path: path, Args: []string{"serve", "--config", file}, Dir: work, Log: filepath.Join(work, "log")})
		if err != nil {
			return 0, err
		}
		_, err = p.WaitReady("http://"+address+"/readyz", time.Minute)
		took := time.Since(p.Started())
		p.Kill()
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, took)
	}
	return slowest, nil
}
