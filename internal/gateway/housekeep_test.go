package gateway

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/store/memory"
)

// TestRemovedSourceLosesBodiesAndKeepsKeys: how long its sender may send an
// event again is no longer known.
func TestRemovedSourceLosesBodiesAndKeepsKeys(t *testing.T) {
	const day = 24 * time.Hour
	for retention, want := range map[string][2]map[string]left{
		"{keys: 20d}": {
			{"configured": {2, 2}, "removed": {2, 2}},
			{"configured": {0, 0}, "removed": {0, 2}},
		},
		"{bodies: 10d, keys: 20d}": {
			{"configured": {0, 2}, "removed": {0, 2}},
			{"configured": {0, 0}, "removed": {0, 2}},
		},
		"{bodies: forever}": {
			{"configured": {2, 2}, "removed": {2, 2}},
			{"configured": {2, 2}, "removed": {2, 2}},
		},
	} {
		t.Run(retention, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				store := memory.New(memory.Options{})
				for _, source := range []string{"configured", "removed"} {
					for i, state := range []ichido.State{ichido.Done, ichido.Done, ichido.Dead, ichido.Pending} {
						rec := ichido.Record{Source: source, Key: fmt.Sprint(source, i), State: state, Outcome: ichido.Ignored, ReceivedAt: time.Now(), Body: []byte("{}")}
						copy(rec.Hash[:], fmt.Sprint(i, source))
						if _, err := store.Put(t.Context(), []ichido.Record{rec}); err != nil {
							t.Fatal(err)
						}
					}
				}
				file := config.Parse([]byte(yaml("  - {name: configured, provider: github, secrets: [" + githubSecret + "]}\nretention: " + retention + "\n")))
				log := &bytes.Buffer{}
				opts := Options{Config: file, Log: slog.New(slog.NewTextHandler(log, nil))}
				g := &Gateway{opts: opts, archive: store, stock: &stocktaker{archive: store}, log: opts.Log}
				endpoints := build(file, &opts, SecretsHere)
				if err := file.Problems(); err != nil {
					t.Fatal(err)
				}
				g.current.Store(&snapshot{file: file, endpoints: endpoints})
				g.warnOfOrphans(t.Context())
				if got := log.String(); !strings.Contains(got, "source removed has 2 done events and is not configured: their bodies go by retention.bodies, their keys stay") || strings.Contains(got, "source configured") {
					t.Errorf("logged %s", got)
				}
				for i, at := range []time.Duration{15 * day, 31 * day} {
					time.Sleep(at - time.Since(start))
					g.purge(t.Context())
					if diff := cmp.Diff(want[i], doneLeft(t, store)); diff != "" {
						t.Errorf("after %s (-want +got):\n%s\n%s", at, diff, log)
					}
				}
			})
		})
	}
}

// left is what is left of the done events of a source.
type left struct{ Bodies, Keys int }

// doneLeft returns what is left of done events, by source; all others must be
// there as they were.
func doneLeft(t *testing.T, store *memory.Store) map[string]left {
	t.Helper()
	records, err := store.List(t.Context(), ichido.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	found, others := map[string]left{"configured": {}, "removed": {}}, 0
	for _, rec := range records {
		if rec.State != ichido.Done {
			others++
			if rec.Purged {
				t.Errorf("a %s event was purged", rec.State)
			}
			continue
		}
		n := found[rec.Source]
		n.Keys++
		if !rec.Purged {
			n.Bodies++
		}
		found[rec.Source] = n
	}
	if others != 4 {
		t.Errorf("%d events are left that are not done, want 4", others)
	}
	return found
}
