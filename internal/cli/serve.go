package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
)

func (a *app) serve() *cobra.Command {
	var p place
	var verbose bool
	var listen, admin string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Receive, store, confirm and deliver webhooks",
		Long: `Receive, store, confirm and deliver webhooks.

Without --config it uses ichido-data/ichido.yaml, and writes it on the first
run with fresh secrets. HOOK_PATH_TOKEN and HOOK_SHARED_SECRET, when set, make
the source /hooks/gemini/{token} without any file.

A change of the file, or SIGHUP, reloads it; a file with a problem changes
nothing. SIGTERM finishes what is in flight and exits.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			return a.runServe(cmd.Context(), &p, listen, admin, a.logger(level))
		},
	}
	cmd.Flags().StringVarP(&p.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	cmd.Flags().StringVar(&p.store, "store", "", "store, for example sqlite:inbox.db (default: the configuration's)")
	cmd.Flags().StringVar(&listen, "listen", "", "address for deliveries (default: the configuration's)")
	cmd.Flags().StringVar(&admin, "admin-listen", "", "address of the admin listener (default: the configuration's)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
}

func (a *app) runServe(ctx context.Context, p *place, listen, admin string, log *slog.Logger) error {
	file, path, err := a.load(p)
	if errors.Is(err, os.ErrNotExist) && p.config == "" {
		if err = writeFirstConfig(); err != nil {
			return err
		}
		log.Info("wrote a configuration with fresh secrets", "file", defaultConfig)
		file, path, err = a.load(p)
	}
	if err != nil {
		return err
	}
	if err := file.Problems(); err != nil {
		return badConfig(path, err)
	}
	file.Listen, file.Admin.Listen = cmp.Or(listen, file.Listen), cmp.Or(admin, file.Admin.Listen)
	gateway.TuneCollector(a.env.LookupEnv)
	store, closeStore, err := a.openStore(ctx, &file.Config, true)
	if err != nil {
		return err
	}
	opts := gateway.Options{Config: file, Store: store, Getenv: a.env.LookupEnv, Log: log}
	if path != "" {
		opts.Reload = func() (*config.File, error) { return config.Load(path) }
	}
	g, err := gateway.New(opts)
	if err != nil {
		return errors.Join(badConfig(path, err), closeStore())
	}
	logStart(log, g, &file.Config)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	if path != "" {
		go watch(ctx, g, path, log)
	}
	err = g.Run(ctx)
	log.Info("stopped")
	return errors.Join(err, closeStore())
}

// badConfig returns what is wrong with a configuration as an error of usage.
func badConfig(path string, err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	if path == "" {
		path = "the environment"
	}
	return usage(`"ichido check" shows each place`, "%s has %d problem(s):\n%w", path, len(problems), problems)
}

func logStart(log *slog.Logger, g *gateway.Gateway, c *config.Config) {
	log.Info("receiving deliveries", "address", g.IngestAddr())
	log.Info("admin", "address", g.AdminAddr(), "health", "/livez /readyz", "metrics", "/metrics", "api", len(c.Admin.Tokens) > 0)
	names, paths := g.Sources()
	for i := range names {
		log.Info("source", "name", names[i], "path", paths[i], "provider", c.Sources[i].Provider)
	}
	log.Info("storing in", "store", c.Store)
}

// watch reloads the configuration on SIGHUP, and when the file has changed
// and stayed the same for one look.
func watch(ctx context.Context, g *gateway.Gateway, path string, log *slog.Logger) {
	const look = 2 * time.Second
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	loaded := fileState(path)
	seen := loaded
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-ticker.C:
			now := fileState(path)
			settled := now == seen
			seen = now
			if now == loaded || !settled || now == "" {
				continue
			}
		}
		loaded = fileState(path)
		if err := g.Reload(); err != nil {
			log.Error("the configuration was not reloaded, the old one stays in force", "error", err)
		}
	}
}

// fileState returns what changes when a file does, "" when it is not there.
func fileState(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}
