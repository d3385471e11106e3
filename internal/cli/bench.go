package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/bench"
)

func (a *app) bench() *cobra.Command {
	o := bench.Options{}
	var dir, contestant string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure durable accepts against a floor and against one commit per request, as ratios",
		Long: `Measure durable accepts against a floor and against one commit per request,
as ratios in one run on this machine and disk.

The floor is a plain net/http server with io.ReadAll and HMAC that stores
nothing. Contestants alternate, each in its own process; the median round
counts. The full run takes about a quarter of an hour.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if contestant != "" {
				return bench.Contend(cmd.Context(), contestant, a.env.Driver, dir, a.env.Stdin, a.env.Stdout)
			}
			return a.runBench(cmd.Context(), o, dir)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "rounds of each contestant")
	f.DurationVar(&o.Duration, "duration", 20*time.Second, "length of one round")
	f.IntVar(&o.Connections, "connections", 256, "keep-alive connections")
	f.StringVar(&dir, "dir", ".", "folder on the disk to measure")
	f.StringVar(&contestant, "contestant", "", "serve as one contestant")
	f.MarkHidden("contestant")
	return cmd
}

func (a *app) runBench(ctx context.Context, o bench.Options, dir string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if o.Dir, err = bench.Here(dir); err != nil {
		return fmt.Errorf("make a folder for the data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	o.Progress = a.env.Stderr
	o.Command = func(ctx context.Context, contestant, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, self, "bench", "--contestant", contestant, "--dir", dir)
	}
	report, err := bench.Run(ctx, o)
	if err != nil {
		return err
	}
	return a.print(report, func(w io.Writer) { report.Print(w) })
}
