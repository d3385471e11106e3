package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
)

func (a *app) serve() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Receive, store, confirm and deliver webhooks",
		Long: `Receive, store, confirm and deliver webhooks.

Without --config it uses ichido-data/ichido.yaml, and writes it on the first
run with fresh secrets. HOOK_PATH_TOKEN and HOOK_SHARED_SECRET, when set, make
the source /hooks/gemini/{token} without any file; its store is then webhook.db
in this folder, or what HOOK_DB names.

It makes the store, and the store's folder in one that is there.

A change of the file, or SIGHUP, reloads it; a file with a problem changes
nothing, and what the environment says changes with a restart. SIGTERM
finishes what is in flight and exits.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if o.verbose {
				level = slog.LevelDebug
			}
			// From here on a signal is heard, also while the start takes its time.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return a.runServe(ctx, &o, a.logger(level))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	f.StringVar(&o.store, "store", "", "store, for example sqlite:inbox.db (default: the configuration's)")
	f.StringVar(&o.listen, "listen", "", "address for deliveries (default: the configuration's)")
	f.StringVar(&o.admin, "admin-listen", "", "address of the admin listener (default: the configuration's)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	return cmd
}

// serveFlags are the flags of serve. Its addresses and its store stand over
// those of the configuration, also when that is read again.
type serveFlags struct {
	place
	listen, admin string
	verbose       bool
}

func (o *serveFlags) override(c *config.Config) {
	c.Listen, c.Admin.Listen = cmp.Or(o.listen, c.Listen), cmp.Or(o.admin, c.Admin.Listen)
	if o.store != "" {
		c.Store = o.store
	}
}

// check refuses flags by the rules that hold in a configuration.
func (o *serveFlags) check() error {
	for _, f := range []struct{ name, address string }{{"--listen", o.listen}, {"--admin-listen", o.admin}} {
		if f.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(f.address); err == nil {
			continue
		}
		example := "127.0.0.1:8080"
		if _, err := strconv.ParseUint(f.address, 10, 16); err == nil {
			example = "127.0.0.1:" + f.address
		}
		return usage("write HOST:PORT, for example "+f.name+" "+example, "%s: is not an address", f.name)
	}
	return o.checkStore()
}

func (a *app) runServe(ctx context.Context, o *serveFlags, log *slog.Logger) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	file, path, err := a.read(&o.place)
	if errors.Is(err, errNoConfig) {
		if err = writeFirstConfig(); err != nil {
			return err
		}
		log.Info("wrote a configuration with fresh secrets", "file", defaultConfig)
		file, path, err = a.read(&o.place)
	}
	if err != nil {
		return err
	}
	gateway.Check(file, a.env.LookupEnv, gateway.SecretsHere)
	if err := file.Problems(); err != nil {
		return badConfig(path, err)
	}
	written := file.Config
	o.override(&file.Config)
	gateway.TuneCollector(a.env.LookupEnv)
	store, closeStore, err := a.openStore(ctx, &file.Config, true)
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before the store was open")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	opts := gateway.Options{Config: file, Store: store, Getenv: a.env.LookupEnv, Log: log}
	if path != "" {
		opts.Reload = func() (*config.File, error) { return o.reload(path, &written, log) }
	}
	g, err := gateway.New(opts)
	if err != nil {
		return listenError(badConfig(path, err))
	}
	logStart(log, g, &file.Config)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watcher sync.WaitGroup
	watcher.Go(func() { watch(watching, g, path, hup, log) })
	err = g.Run(ctx)
	stopWatching()
	watcher.Wait()
	log.Info("stopped")
	return err
}

// reload reads the configuration again. Where the command line stands over a
// setting that has changed in the file since it was written, it says so.
func (o *serveFlags) reload(path string, written *config.Config, log *slog.Logger) (*config.File, error) {
	file, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name          string
		set           string
		before, after string
	}{
		{"listen", o.listen, written.Listen, file.Listen},
		{"admin.listen", o.admin, written.Admin.Listen, file.Admin.Listen},
		{"store", o.store, written.Store, file.Store},
	} {
		if s.set != "" && s.before != s.after {
			log.Warn("the command line stands over this setting of the file", "setting", s.name)
		}
	}
	o.override(&file.Config)
	return file, nil
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

// listenError says what to do about an address that cannot be listened on.
func listenError(err error) error {
	const elsewhere = "--listen and --admin-listen, or listen: and admin.listen: in the configuration, name another address"
	hint := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = `another process has that port, perhaps another "ichido serve" ("ss -ltnp" shows which): stop it; or ` + elsewhere
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		hint = "this machine has no such address; " + elsewhere
	case errors.Is(err, syscall.EACCES):
		hint = "ports under 1024 need a privilege; " + elsewhere
	default:
		return err
	}
	return &failure{exitError, err, hint}
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
// and stayed the same for one look. Without a file there is nothing to read
// again: the environment of a process does not change.
func watch(ctx context.Context, g *gateway.Gateway, path string, hup <-chan os.Signal, log *slog.Logger) {
	const look = 2 * time.Second
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	loaded := fileState(path)
	seen := loaded
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			if path == "" {
				log.Warn("there is nothing to reload: the configuration is in the environment, which changes only with a restart")
				continue
			}
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
