package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/sqlite"
)

// TestAHandlerThatIgnoresItsContext is rolled back and let go: the gate is
// free, and what it does afterwards fails.
func TestAHandlerThatIgnoresItsContext(t *testing.T) {
	s, db := openPath(t, newPath(t), sqlite.Options{})
	if _, err := db.Exec("CREATE TABLE effects (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	wake, late := make(chan struct{}), make(chan error, 2)
	apply := s.Tx(func(_ context.Context, tx *sql.Tx, _ *ichido.Event) error {
		if _, err := tx.Exec("INSERT INTO effects VALUES ('early')"); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Error(err)
		}
		<-wake
		_, err := tx.Exec("INSERT INTO effects VALUES ('late')")
		late <- err
		late <- tx.Commit()
		return nil
	})
	r := record("a")
	v, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || v == ichido.Accepted {
		t.Errorf("accept: %v, %v", v, err)
	}
	// The zombie is still there, and everything goes on.
	if v, err := s.Put(context.Background(), []ichido.Record{record("b")}); err != nil || v[0] != ichido.Accepted {
		t.Errorf("put: %v, %v", v, err)
	}
	close(wake)
	for range 2 {
		if err := <-late; !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("the zombie's call gave %v, want ErrTxDone", err)
		}
	}
	if got := readEffects(t, db); len(got) != 0 {
		t.Errorf("effects %v, want none", got)
	}
	if list, err := s.List(context.Background(), ichido.Filter{}); err != nil || len(list) != 1 || list[0].Key != "b" {
		t.Errorf("events %v, %v", list, err)
	}
}

// TestAHandlerThatEndsTheTransaction breaks its contract. The event's row was
// written first, so whatever it did, row and effect agree; the attempt has
// failed, and not the store, which would be waited for without an end.
func TestAHandlerThatEndsTheTransaction(t *testing.T) {
	ctx := context.Background()
	s, db := openPath(t, newPath(t), sqlite.Options{})
	if _, err := db.Exec("CREATE TABLE effects (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	raw := func(text string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.Exec(text)
			return err
		}
	}
	for _, c := range []struct {
		name  string
		end   func(*sql.Tx) error
		keeps bool
	}{
		{"Commit", (*sql.Tx).Commit, true},
		{"Rollback", (*sql.Tx).Rollback, false},
		{"COMMIT", raw("COMMIT"), true},
		{"ROLLBACK", raw("ROLLBACK"), false},
		{"or rollback", func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT OR ROLLBACK INTO ichido_meta VALUES ('seq', 0)")
			if err == nil {
				t.Error("the key of ichido_meta is not unique")
			}
			return nil
		}, false},
	} {
		apply := s.Tx(func(_ context.Context, tx *sql.Tx, _ *ichido.Event) error {
			if _, err := tx.Exec("INSERT INTO effects VALUES (?)", c.name); err != nil {
				return err
			}
			return c.end(tx)
		})
		blamed := func(call string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, ichido.ErrUnavailable) || !strings.Contains(err.Error(), "the handler ended the transaction") {
				t.Errorf("%s, %s: got %v, want the handler's error", c.name, call, err)
			}
		}
		r := record(c.name + " in the request")
		_, err := apply.Accept(ctx, &r, new(ichido.Event), time.Minute)
		blamed("accept", err)

		put(t, s, record(c.name))
		claimed := claimOne(t, s)
		blamed("complete", apply.Complete(ctx, claimed, new(ichido.Event), time.Minute))

		effects, want := 0, 0
		for _, name := range readEffects(t, db) {
			if name == c.name {
				effects++
			}
		}
		if c.keeps {
			want = 2
		}
		got, err := s.Get(ctx, claimed.ID())
		if effects != want || err != nil || (got.State == ichido.Done) != c.keeps {
			t.Errorf("%s: %d effects, and the event is %s, %v", c.name, effects, got.State, err)
		}
		if _, err := s.Get(ctx, r.ID()); errors.Is(err, ichido.ErrNotFound) == c.keeps {
			t.Errorf("%s: the event of the request: %v", c.name, err)
		}
		if s.Err() != nil {
			t.Fatalf("%s: the store: %v", c.name, s.Err())
		}
	}
	checkDB(t, db)
}

// TestATransactionThatStaysOpen: a driver that fails to end a transaction may
// leave it open, and the next one must not begin, or commit, inside of it.
func TestATransactionThatStaysOpen(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		query  string
		result error // of the handler
		want   error
	}{
		{"COMMIT", nil, ichido.ErrUnavailable},
		{"ROLLBACK of a handler's transaction", failed, failed},
	} {
		db, h := openHooked(t, newPath(t))
		s, err := sqlite.Open(context.Background(), db, sqlite.Options{MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := db.Exec("CREATE TABLE effects (name TEXT)"); err != nil {
			t.Fatal(err)
		}
		apply := s.Tx(func(_ context.Context, tx *sql.Tx, _ *ichido.Event) error {
			_, err := tx.Exec("INSERT INTO effects VALUES ('a')")
			return errors.Join(err, c.result)
		})
		for _, next := range []func(){
			func() { put(t, s, record("put")) },
			func() {
				r := record("b")
				_, err := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error { return nil }).Accept(context.Background(), &r, new(ichido.Event), time.Minute)
				if err != nil {
					t.Errorf("accept after %s: %v", c.query, err)
				}
			},
		} {
			h.set(func(query string) (error, bool) {
				if query == c.query {
					return stuck{noSpace}, false
				}
				return nil, false
			})
			r := record("a")
			if _, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute); !errors.Is(err, c.want) {
				t.Errorf("accept: %v, want %v", err, c.want)
			}
			h.set(nil)
			next()
		}
		if got := readEffects(t, db); len(got) != 0 {
			t.Errorf("effects %v after %s failed", got, c.query)
		}
		if list, err := s.List(context.Background(), ichido.Filter{}); err != nil || len(list) != 2 {
			t.Errorf("%d events, %v", len(list), err)
		}
	}
}

// TestAnEndedContextDoesNotWaitForTheGate: the answer is the store's, not the
// handler's, because the handler never ran.
func TestAnEndedContextDoesNotWaitForTheGate(t *testing.T) {
	s, _ := openPath(t, newPath(t), sqlite.Options{})
	release := s.Hold()
	defer release()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		r := record("a")
		_, err := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
			t.Error("the handler ran")
			return nil
		}).Accept(ctx, &r, new(ichido.Event), time.Minute)
		done <- err
	}()
	wait(t, s, 1)
	cancel()
	err := <-done
	if got := cause(t, err); got != "busy" || !errors.Is(err, context.Canceled) {
		t.Errorf("cause %q of %v", got, err)
	}
}

// TestAnotherWriterInTheMiddle writes from outside before every statement of a
// transaction. Until it has the lock that succeeds, and changes nothing for
// it; after that the other one waits. A transaction that had read before it
// had the lock would fail.
func TestAnotherWriterInTheMiddle(t *testing.T) {
	path := newPath(t)
	db, h := openHooked(t, path)
	s, err := sqlite.Open(context.Background(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := openDB(t, path+"?_pragma=busy_timeout(0)")
	if _, err := other.Exec("CREATE TABLE others (n)"); err != nil {
		t.Fatal(err)
	}
	wrote, refused := 0, 0
	between := func(string) (error, bool) {
		if _, err := other.Exec("INSERT INTO others VALUES (1)"); err == nil {
			wrote++
		} else {
			refused++
		}
		return nil, false
	}
	apply := s.Tx(func(ctx context.Context, tx *sql.Tx, _ *ichido.Event) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM others").Scan(&n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO others VALUES (2)")
		return err
	})
	if _, err := s.Put(context.Background(), []ichido.Record{record("b")}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Claim(context.Background(), ichido.Want{Slots: map[string]int{"github": 1}, Lease: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatalf("claim: %v, %v", got, err)
	}
	for name, call := range map[string]func() error{
		"accept": func() error {
			r := record("a")
			_, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute)
			return err
		},
		"complete": func() error { return apply.Complete(context.Background(), &got[0], new(ichido.Event), time.Minute) },
	} {
		wrote, refused = 0, 0
		commits := s.Commits()
		h.set(between)
		err := call()
		h.set(nil)
		if n := s.Commits() - commits; n != 1 {
			t.Errorf("%s: %d commits are counted, want 1", name, n)
		}
		if err != nil || wrote == 0 || refused == 0 {
			t.Errorf("%s: %v; the other one wrote %d times and was refused %d times", name, err, wrote, refused)
		}
	}
}

// TestForeignKeysHoldInTransactions: the effect's tables are guarded whatever
// the data source name says.
func TestForeignKeysHoldInTransactions(t *testing.T) {
	s, db := openPath(t, newPath(t), sqlite.Options{})
	if _, err := db.Exec("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a REFERENCES a); CREATE TABLE late (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	r := record("a")
	for _, statement := range []string{"INSERT INTO b VALUES (7)", "INSERT INTO late VALUES (7)"} {
		_, err := s.Tx(func(ctx context.Context, tx *sql.Tx, _ *ichido.Event) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}).Accept(context.Background(), &r, new(ichido.Event), time.Minute)
		// It is the handler's error, though a deferred one shows at the commit.
		if err == nil || errors.Is(err, ichido.ErrUnavailable) || !strings.Contains(err.Error(), "FOREIGN KEY") {
			t.Errorf("%s: got %v", statement, err)
		}
	}
	if v, err := s.Put(context.Background(), []ichido.Record{r}); err != nil || v[0] != ichido.Accepted {
		t.Errorf("afterwards: %v, %v", v, err)
	}
}

// A crowd of handlers in transactions must not hold up what senders wait for.
func TestSendersWaitForOneHandlerAtMost(t *testing.T) {
	s, _ := openPath(t, newPath(t), sqlite.Options{})
	began, proceed := make(chan struct{}), make(chan struct{})
	apply := s.Tx(func(context.Context, *sql.Tx, *ichido.Event) error {
		began <- struct{}{}
		<-proceed
		return nil
	})
	var crowd sync.WaitGroup
	for i := range 8 {
		crowd.Go(func() {
			r := record(fmt.Sprint("handled ", i))
			if v, err := apply.Accept(context.Background(), &r, new(ichido.Event), time.Minute); err != nil || v != ichido.Accepted {
				t.Errorf("a handler's event: %v, %v", v, err)
			}
		})
	}
	<-began
	wait(t, s, 7)
	answer := async(context.Background(), s, record("sent"))
	wait(t, s, 8)
	proceed <- struct{}{}
	if a := <-answer; a.err != nil || a.v != ichido.Accepted { // while seven handlers wait
		t.Errorf("the sender's event: %v, %v", a.v, a.err)
	}
	for range 7 {
		<-began
		proceed <- struct{}{}
	}
	crowd.Wait()
}
