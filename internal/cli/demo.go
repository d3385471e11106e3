package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/demo"
)

func (a *app) demo() *cobra.Command {
	var exit bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch genuine webhooks be stored, deduplicated, confirmed and applied, and forged ones refused",
		Long: `Watch genuine webhooks be stored, deduplicated, confirmed and applied, and
forged ones refused: over real HTTP, through the code of "ichido serve", on
SQLite in a temporary folder, with a local stand-in of the Gemini API.

It stays up afterwards so that you can look around, until Ctrl-C; with --exit
it ends. It fails if anything is not as it should be.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return a.runDemo(ctx, exit)
		},
	}
	cmd.Flags().BoolVar(&exit, "exit", false, "end after the table")
	return cmd
}

func (a *app) runDemo(ctx context.Context, exit bool) (err error) {
	d, err := demo.Start(ctx, demo.Options{Driver: a.env.Driver, Log: a.logger(slog.LevelError)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if !a.json {
		fmt.Fprintln(a.stdout, "Sending genuine and forged webhooks to a fresh ichido; the Gemini API takes a few seconds to come true.")
		fmt.Fprintln(a.stdout)
	}
	report, err := d.Play(ctx)
	if err != nil {
		return err
	}
	if err := a.print(report, func(w io.Writer) { report.Print(w) }); err != nil {
		return err
	}
	if !report.Fine {
		return errors.New("the demo did not come out as it should")
	}
	if exit {
		return nil
	}
	ingest, admin := d.Addresses()
	fmt.Fprintf(a.stderr, `
still running; look around in another terminal, Ctrl-C ends it:
  %[4]s events --store sqlite:%[1]s
  %[4]s show ID --store sqlite:%[1]s
  curl http://%[2]s/metrics
deliveries are received on http://%[3]s/hooks/…
`, d.Database(), admin, ingest, self())
	<-ctx.Done()
	return nil
}

// self returns how this program can be called again.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return "ichido"
	}
	return callable(path)
}

// callable returns how the program at path can be called: by its name where
// the shell finds it, by its path where not, and through "go run" where that
// made a program that is gone with it.
func callable(path string) string {
	if strings.Contains(filepath.ToSlash(path), "/go-build") {
		return "go run ./cmd/ichido"
	}
	if found, err := exec.LookPath("ichido"); err == nil && sameFile(found, path) {
		return "ichido"
	}
	return path
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
