package cli

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/flush"
	"ichido.dev/ichido/internal/gateway"
	"ichido.dev/ichido/store/sqlite"
)

// openStore opens the store that a configuration names. create makes it, and
// its folder where only that is missing.
func (a *app) openStore(ctx context.Context, c *config.Config, create bool) (*sqlite.Store, func() error, error) {
	path := strings.TrimPrefix(c.Store, "sqlite:")
	if err := onDisk(path); err != nil {
		return nil, nil, storeError(path, err)
	}
	if create {
		if err := makeStore(path); err != nil {
			return nil, nil, storeError(path, err)
		}
	}
	if err := look(path); err != nil {
		return nil, nil, storeError(path, err)
	}
	db, err := sql.Open(a.env.Driver, "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxIdleConns(4) // readers are opened once
	store, err := sqlite.Open(ctx, db, sqlite.Options{Capacity: c.Limits.Events, MinFree: int64(c.Limits.FreeDisk)})
	if err != nil {
		return nil, nil, errors.Join(storeError(path, err), db.Close())
	}
	return store, func() error { return errors.Join(store.Close(), db.Close()) }, nil
}

// Why a file is not used as a store.
var (
	errNotDatabase = errors.New("it is not an SQLite database")
	errFolder      = errors.New("it is a folder")
	errNoFolder    = errors.New("the folder that it would be made in is not there")
	errNotOnDisk   = errors.New("an inbox must be on disk, in a file that its path names")
)

// onDisk refuses what SQLite does not take for the path of a file.
func onDisk(path string) error {
	if strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:") {
		return errNotOnDisk
	}
	return nil
}

// look refuses what cannot be a store, and what this user may not write to,
// before a driver says so in its own words. An empty file becomes a store.
func look(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return errFolder
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0 && err == io.EOF, string(head[:n]) == magic:
		return nil
	case err != nil && err != io.ErrUnexpectedEOF:
		return err
	}
	return errNotDatabase
}

// storeError says of which store an error is, and what to do.
func storeError(path string, err error) error {
	const elsewhere = "--store, or store: in the configuration, says where it is"
	hint := ""
	switch {
	case errors.Is(err, errFolder):
		hint = "name the file in it, for example sqlite:" + filepath.Join(path, "ichido.db")
	case errors.Is(err, errNotOnDisk):
		hint = "name a file by its path, for example sqlite:inbox.db; " + elsewhere
	case errors.Is(err, errNotDatabase):
		hint = elsewhere
	case errors.Is(err, errNoFolder):
		hint = fmt.Sprintf("make %s first if it is meant; %s", filepath.Dir(path), elsewhere)
	case errors.Is(err, fs.ErrNotExist):
		return &failure{exitError, fmt.Errorf("there is no store at %s", path), `"ichido serve" makes one; ` + elsewhere}
	case cannotWrite(err):
		hint = fmt.Sprintf("whoever uses it must be allowed to write to it and to its folder, %s: run as its owner", filepath.Dir(path))
	}
	return &failure{exitError, fmt.Errorf("open store %s: %w", path, shortened(err)), hint}
}

// cannotWrite reports whether an error, perhaps SQLite's about the folder of
// the database, is about who may write where.
func cannotWrite(err error) bool {
	const readOnly, cannotOpen = 8, 14 // SQLite's result codes; the low byte is the kind
	var coded interface{ Code() int }
	if errors.As(err, &coded) && (coded.Code()&0xff == readOnly || coded.Code()&0xff == cannotOpen) {
		return true
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// shortened leaves out of an error of a file the path that is said already.
func shortened(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// makeStore makes the database file, for its owner only: it will hold
// payloads. SQLite gives the files beside it the same mode.
func makeStore(path string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EISDIR) {
		return errFolder
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// makeFolder makes a folder where its parent is there: more than one that is
// missing is a mistyped path. It is there after a power cut, too: what is in
// it is flushed by the store, its own name by nobody else.
func makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return errNoFolder
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return flush.Name(path, (*os.File).Sync)
}

// place is how commands are told which store and configuration to use.
type place struct {
	config string // file; "" for the default
	store  string // overrides the configuration's
	named  string // what named the file; "" for --config
}

// checkStore refuses a --store by the rule that holds in a configuration.
func (p *place) checkStore() error {
	if p.store == "" {
		return nil
	}
	const cure = "write sqlite:PATH, for example --store sqlite:inbox.db"
	path, found := strings.CutPrefix(p.store, "sqlite:")
	if !found || path == "" {
		return usage(cure, "--store: is not a store")
	}
	if err := onDisk(path); err != nil {
		return usage(cure, "--store: %w", err)
	}
	return nil
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
		file.Store = p.store
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
		return nil, "", unreadable(path, cmp.Or(p.named, "--config"), err)
	}
	return file, path, nil
}

// unreadable says what to do about a configuration that cannot be read; named
// is what named it.
func unreadable(path, named string, err error) error {
	hint := ""
	switch info, statErr := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		hint = fmt.Sprintf("%s names the file; without it, %s is used", named, defaultConfig)
	case errors.Is(err, fs.ErrPermission):
		hint = "it holds secrets and is for its owner only: run as that user"
	case statErr == nil && info.IsDir():
		hint = named + " must name the file, not its folder"
	}
	return usage(hint, "%w", err)
}
