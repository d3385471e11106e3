package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
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
		Args: cobra.NoArgs,
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
		fmt.Fprintln(a.env.Stdout, "Sending genuine and forged webhooks to a fresh ichido; the Gemini API takes a few seconds to come true.")
		fmt.Fprintln(a.env.Stdout)
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
	fmt.Fprintf(a.env.Stderr, `
still running; look around in another terminal, Ctrl-C ends it:
  ichido events --store %[1]s
  ichido show ID --store %[1]s
  curl http://%[2]s/metrics
deliveries are received on http://%[3]s/hooks/…
`, d.Database(), admin, ingest)
	<-ctx.Done()
	return nil
}
