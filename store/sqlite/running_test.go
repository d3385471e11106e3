package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"ichido.dev/ichido"
)

// TestOnlyTheTransactionThatRunsIsMarked: after a crash the marks say whose
// handler was running; events that waited for the transaction are innocent.
func TestOnlyTheTransactionThatRunsIsMarked(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := t.Context()
	s, err := Open(ctx, db, Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	records := []ichido.Record{{Hash: [16]byte{1}, Source: "s", Body: []byte("1")}, {Hash: [16]byte{2}, Source: "s", Body: []byte("2")}}
	if _, err := s.Put(ctx, records); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, ichido.Want{Slots: map[string]int{"s": 2}, Lease: time.Minute})
	if err != nil || len(claimed) != 2 {
		t.Fatalf("Claim returned %d events, %v", len(claimed), err)
	}
	marks := func() (seqs []int64) {
		s.running.mu.Lock()
		defer s.running.mu.Unlock()
		for c, m := range s.running.marks {
			if !m.ended {
				seqs = append(seqs, c.seq)
			}
		}
		return seqs
	}
	boom := errors.New("boom")
	entered, leave := make(chan []int64), make(chan struct{})
	apply := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
		entered <- marks()
		<-leave
		return boom
	})
	ended := make(chan error, 2)
	for i := range claimed {
		go func() { ended <- apply.Complete(ctx, &claimed[i], &ichido.Event{}, time.Minute) }()
	}
	for range claimed {
		if during := <-entered; len(during) != 1 {
			t.Errorf("while a handler runs %v are marked, want one", during)
		}
		leave <- struct{}{}
	}
	for range claimed {
		if err := <-ended; !errors.Is(err, boom) {
			t.Errorf("Complete returned %v, want the handler's error", err)
		}
	}
	if after := marks(); len(after) != 0 {
		t.Errorf("after the handlers %v are marked", after)
	}
}
