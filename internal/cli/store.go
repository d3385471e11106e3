package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
	"ichido.dev/ichido/store/sqlite"
)

// openStore opens the store that a configuration names. create makes it and
// its folder when it is not there.
func (a *app) openStore(ctx context.Context, c *config.Config, create bool) (*sqlite.Store, func() error, error) {
	path := strings.TrimPrefix(c.Store, "sqlite:")
	if !create {
		if _, err := os.Stat(path); err != nil {
			return nil, nil, &failure{exitError, fmt.Errorf("there is no store at %s", path), `"ichido serve" makes one; --config and --store say where it is`}
		}
	}
	if create {
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return nil, nil, fmt.Errorf("make the store's folder: %w", err)
		}
		if err := touch(path); err != nil {
			return nil, nil, err
		}
	}
	db, err := sql.Open(a.env.Driver, "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxIdleConns(4) // readers are opened once
	store, err := sqlite.Open(ctx, db, sqlite.Options{Capacity: c.Limits.Events, MinFree: int64(c.Limits.FreeDisk)})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open store: %w", err), db.Close())
	}
	return store, func() error { return errors.Join(store.Close(), db.Close()) }, nil
}

// makeFolder makes a folder that is there after a power cut, too: what is in
// it is flushed by the store, its own name by nobody else.
func makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// touch makes the database file, for its owner only: it will hold payloads.
// SQLite gives the files beside it the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("make the store: %w", err)
	}
	return f.Close()
}

// storeConfig returns a configuration that names only a store.
func storeConfig(spec string) *config.Config {
	if !strings.HasPrefix(spec, "sqlite:") {
		spec = "sqlite:" + spec
	}
	return &config.Config{Store: spec}
}

// place is how commands are told which store and configuration to use.
type place struct {
	config string // file; "" for the default
	store  string // overrides the configuration's
}

// errNoConfig says that nothing names a configuration and that there is none
// at the default place.
var errNoConfig = errors.New("there is no configuration here")

// load returns the configuration that the flags, the environment or the
// default say, and refuses one with a problem: every problem that "ichido
// check" finds, but for secrets that only the server has.
func (a *app) load(p *place) (*config.File, error) {
	file, path, err := a.find(p)
	if err != nil {
		return nil, err
	}
	gateway.Check(file, a.env.LookupEnv, gateway.SecretsElsewhere)
	if err := file.Problems(); err != nil {
		return nil, badConfig(path, err)
	}
	return file, nil
}

// find returns the configuration with its path, "" for the environment, and
// its problems.
func (a *app) find(p *place) (*config.File, string, error) {
	file, path, err := a.read(p)
	if err != nil {
		return nil, "", err
	}
	if p.store != "" {
		file.Store = storeConfig(p.store).Store
	}
	return file, path, nil
}

func (a *app) read(p *place) (*config.File, string, error) {
	path := p.config
	if path == "" {
		file, err := config.FromEnvironment(a.env.LookupEnv)
		if err != nil {
			return nil, "", usage("", "%w", err)
		}
		if file != nil {
			return file, "", nil
		}
		if _, err := os.Stat(defaultConfig); errors.Is(err, os.ErrNotExist) {
			return nil, "", errNoConfig
		}
		path = defaultConfig
	}
	file, err := config.Load(path)
	if err != nil {
		return nil, "", usage("--config names the file", "%w", err)
	}
	return file, path, nil
}
