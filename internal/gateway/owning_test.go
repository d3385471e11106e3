package gateway

import (
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/store/sqlite"
)

// TestSecondServerOfAStoreDoesNotStart, and does when the first has ended.
func TestSecondServerOfAStoreDoesNotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ichido.db")
	open := func() (*sqlite.Store, func()) {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		store, err := sqlite.Open(t.Context(), db, sqlite.Options{MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		return store, func() {
			if err := errors.Join(store.Close(), db.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	serve := func(store Store) error {
		g, err := New(Options{Config: config.Parse([]byte(yaml(githubSource))), Store: store, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = errors.Join(g.ingest.Close(), g.admin.Close())
		}
		return err
	}
	first, closeFirst := open()
	second, closeSecond := open()
	defer closeSecond()
	if err := serve(first); err != nil {
		t.Fatalf("the first server: %v", err)
	}
	err := serve(second)
	if err == nil {
		t.Fatal("the second server started")
	}
	for _, want := range []string{"another process works the events", path + "-worker.lock", "stop the other one, or give this one another store: --store"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not say %q", err, want)
		}
	}
	closeFirst()
	if err := serve(second); err != nil {
		t.Errorf("after the first server ended: %v", err)
	}
}

// TestEventsOfASourceThatIsGoneAreNamed at the start and at a reload.
func TestEventsOfASourceThatIsGoneAreNamed(t *testing.T) {
	r := open(t, yaml(githubSource))
	var recs []ichido.Record
	for _, key := range []string{"a", "b"} {
		rec := ichido.Record{Source: "renamed", Key: key, ReceivedAt: time.Now(), State: ichido.Pending}
		copy(rec.Hash[:], key)
		recs = append(recs, rec)
	}
	if _, err := r.store.Put(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
	const want = "source renamed has 2 pending events and is not configured: they wait"
	logged := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Count(r.log.String(), want)
	}
	t.Cleanup(r.run())
	for deadline := time.After(20 * time.Second); logged() == 0; {
		select {
		case <-deadline:
			t.Fatal("at the start it was not said")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if got := logged(); got != 1 {
		t.Errorf("at the start it was said %d times", got)
	}
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := logged(); got != 2 {
		t.Errorf("after a reload it was said %d times", got)
	}
	r.reload = yaml("  - {name: renamed, provider: github, secrets: [" + githubSecret + "]}\n")
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := logged(); got != 2 {
		t.Errorf("after it is configured again it was said %d times", got)
	}
}

func TestRecoveryIsToldOnce(t *testing.T) {
	var r recovery
	now := time.Now()
	for i, step := range []struct {
		err   error
		after time.Duration
		want  bool
	}{
		{nil, 0, false},
		{errors.New("answered 503"), time.Second, false},
		{nil, time.Second, true},
		{nil, time.Second, false},
		{errors.New("answered 503"), time.Second, false},
		{nil, time.Second, false}, // comes and goes
		{nil, recoveryEvery, true},
		{nil, recoveryEvery, false},
	} {
		now = now.Add(step.after)
		if got := r.note(step.err, now); got != step.want {
			t.Errorf("step %d: told %t, want %t", i+1, got, step.want)
		}
	}
}
