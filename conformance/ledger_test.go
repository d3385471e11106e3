package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

// Document C: the signature is valid, and the webhook arrives twice.
func TestLedger(t *testing.T) { run(t, ledgerRows()) }

func ledgerRows() []row {
	return []row{
		{"C1 what is signed is the decimal timestamp, a dot and the raw body", testSignedBytes},
		{"C2 the signature is HMAC-SHA256 in hexadecimal", testSignatureIsHexHMAC},
		{"C3 anything but the exact signature does not verify", testOnlyTheExactSignature},
		{"C4 a timestamp is fresh within the tolerance, both ways, edges included", testFreshness},
		{"C5 inbox and total are in one database, and are made once", testInitialisation},
		{"C6 an event is applied once, a copy changes nothing, another content is a conflict", testAppliedOnce},
		{"C7 a failure between the inbox and the effect leaves neither", testFailureLeavesNeither},
		{"C8 the total is read over another connection", testTotalOverAnotherConnection},
		{"C9 POST /webhook answers 401, 400, 409 and 200, in this order of work", testWebhookAnswers},
		{"C10 the limits are stated, and what was open is closed", testStatedLimits},
	}
}

const ledgerSecret = "made-up-ledger-secret-2Hn5Tc8"

// mac is the signature, computed apart from the library.
func mac(text string) string {
	m := hmac.New(sha256.New, []byte(ledgerSecret))
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil))
}

// stamped returns the headers of a body signed at a time.
func stamped(at time.Time, body string) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return http.Header{"X-Timestamp": {timestamp}, "X-Signature": {mac(timestamp + "." + body)}}
}

// ledger adds payments to a total, in the transaction that remembers them.
type ledger struct {
	store *testStore
	inbox *ichido.Inbox
	url   string
	fault func() error // between the row of the event and its effect

	mu     sync.Mutex
	memory int64 // the total where the store has no database
}

type payment struct {
	ID     string
	Amount int64
}

func newLedger(t *testing.T, s *testStore) *ledger {
	t.Helper()
	l := &ledger{store: s, fault: func() error { return nil }}
	src := newSource(t, "hmac", provider.Config{Name: "payments", Secrets: secrets(ledgerSecret), Fingerprint: []string{"id", "amount"}})
	src.InRequest = true
	if s.tx == nil {
		src.Apply = s.apply(func(_ context.Context, e *ichido.Event) error { return l.apply(e, l.addInMemory) })
	} else {
		if err := makeTotal(s.db); err != nil {
			t.Fatal(err)
		}
		src.Apply = s.tx(func(ctx context.Context, tx *sql.Tx, e *ichido.Event) error {
			return l.apply(e, func(amount int64) error {
				_, err := tx.ExecContext(ctx, "UPDATE total SET amount = amount + ? WHERE id = 1", amount)
				return err
			})
		})
	}
	l.inbox = newInbox(t, s, src)
	mux := http.NewServeMux()
	mux.Handle("/webhook", l.inbox)
	l.url = serve(t, mux) + "/webhook"
	return l
}

// makeTotal makes the table and its one row; again, it changes nothing.
func makeTotal(db *sql.DB) error {
	_, err := db.Exec(`CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL);
		INSERT INTO total (id, amount) VALUES (1, 0) ON CONFLICT DO NOTHING`)
	return err
}

func (l *ledger) apply(e *ichido.Event, add func(amount int64) error) error {
	var p payment
	if err := json.Unmarshal(e.Payload(), &p); err != nil || p.ID == "" || p.Amount <= 0 {
		return ichido.Permanent(errors.New("a payment has an id and a positive whole amount"))
	}
	if err := l.fault(); err != nil {
		return err
	}
	return add(p.Amount)
}

func (l *ledger) addInMemory(amount int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory += amount
	return nil
}

// total reads the total over a connection of its own.
func (l *ledger) total(t *testing.T) (total int64) {
	t.Helper()
	if l.store.tx == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.memory
	}
	if err := openDB(t, l.store.path).QueryRow("SELECT amount FROM total WHERE id = 1").Scan(&total); err != nil {
		t.Fatal(err)
	}
	return total
}

// send signs a body now and posts it.
func (l *ledger) send(t *testing.T, body string) answer {
	t.Helper()
	return post(t, l.url, stamped(time.Now(), body), body)
}

// holds reports a ledger with another total or another number of payments.
func (l *ledger) holds(t *testing.T, total int64, payments int) {
	t.Helper()
	applied := 0
	for _, r := range l.store.list(t, "payments") {
		if r.State == ichido.Done && r.Outcome == ichido.Applied {
			applied++
		}
	}
	if got := l.total(t); got != total || applied != payments {
		t.Errorf("the total is %d of %d payments, want %d of %d", got, applied, total, payments)
	}
}

const (
	first = `{"accepted":true,"duplicate":false}`
	again = `{"accepted":true,"duplicate":true}`
)

func paid(id string, amount int64) string { return fmt.Sprintf(`{"id":%q,"amount":%d}`, id, amount) }

func testSignedBytes(t *testing.T) {
	l := newLedger(t, openMemory())
	now := time.Now()
	for n, body := range []string{
		paid("evt_0", 1), " " + paid("evt_1", 1) + "\n", `{"amount":1,"id":"evt_2"}`, `{"id":"evt_3","amount":1,"text":"1.2.3 é \u0000"}`,
	} {
		h := signed(t, "hmac", provider.SignConfig{Secret: ledgerSecret, Time: now}, body)
		want := stamped(now, body)
		if h.Get("X-Timestamp") != want.Get("X-Timestamp") || h.Get("X-Signature") != want.Get("X-Signature") {
			t.Errorf("%q is signed as %v, want %v", body, h, want)
		}
		post(t, l.url, want, body).says(t, first)
		l.holds(t, int64(n+1), n+1)
	}
	// The text of the timestamp is strict, and signed as it is: each of these
	// is signed rightly.
	body, second := paid("evt_9", 1), strconv.FormatInt(now.Unix(), 10)
	for _, text := range []string{
		"", " ", "x", "true", "null", "+" + second, "-" + second, "0" + second, " " + second, second + " ", second + "\t", second + ".0", second + ".", second + "e0",
		"0x" + strconv.FormatInt(now.Unix(), 16), second + "," + second, second + "s", strconv.FormatInt(now.UnixMilli(), 10), strconv.FormatInt(now.UnixNano(), 10),
		now.UTC().Format(time.RFC3339), now.UTC().Format(http.TimeFormat), second[:8], fullWidth(second), `"` + second + `"`, second[:3] + "_" + second[3:],
	} {
		h := http.Header{"X-Timestamp": {text}, "X-Signature": {mac(text + "." + body)}}
		if a := direct(l.inbox, delivery("/webhook", h, body)); a.status != http.StatusUnauthorized || a.code != ichido.CodeSignature {
			t.Errorf("timestamp %q is answered %d %s", text, a.status, a.body)
		}
	}
	h := stamped(now, body)
	h.Add("X-Timestamp", second)
	post(t, l.url, h, body).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	h.Del("X-Timestamp")
	post(t, l.url, h, body).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	l.holds(t, 4, 4)
}

// fullWidth writes digits as Unicode's full-width ones.
func fullWidth(digits string) string {
	return strings.Map(func(r rune) rune { return r - '0' + '\uff10' }, digits)
}

func testSignatureIsHexHMAC(t *testing.T) {
	// Computed with openssl dgst -sha256 -hmac.
	const want = "931c0eb023e897aeb1daba618a6657ccc7eba4c048aab158846a8db133ab8e56"
	body := paid("evt_1", 500)
	if body != `{"id":"evt_1","amount":500}` {
		t.Fatalf("the body is %s", body)
	}
	at := time.Unix(1_700_000_000, 0)
	if got := signed(t, "hmac", provider.SignConfig{Secret: ledgerSecret, Time: at}, body).Get("X-Signature"); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	src := newSource(t, "hmac", provider.Config{Secrets: secrets(ledgerSecret)})
	d := &ichido.Delivery{
		Method: http.MethodPost, Body: []byte(body), ReceivedAt: at,
		Header: http.Header{"X-Timestamp": {"1700000000"}, "X-Signature": {want}},
	}
	if p, err := src.Provider.Verify(d); err != nil || p.Strength != ichido.Verified || !p.Time.Equal(at) {
		t.Errorf("the proof is %+v, %v", p, err)
	}
}

func testOnlyTheExactSignature(t *testing.T) {
	comparesInConstantTime(t, "../provider")
	l := newLedger(t, openMemory())
	body := paid("evt_1", 500)
	h := stamped(time.Now(), body)
	good := h.Get("X-Signature")
	wrong := []string{
		"", " ", "None", "0", good[:63], good[1:], good + "0", good + good, " " + good[1:], good + " ", good + "\n", strings.ToUpper(good),
		"sha256=" + good, "0x" + good, strings.Repeat("0", 64), strings.Repeat("g", 64), good[:63] + "é", good[:62] + "é", fullWidth("00") + good[:58],
		good[:32] + "," + good[32:], good + "," + good, mac("1." + body), mac(body), mac(h.Get("X-Timestamp") + "." + body + " "),
	}
	for n := range good {
		digit := "0"
		if good[n] == '0' {
			digit = "1"
		}
		wrong = append(wrong, good[:n]+digit+good[n+1:])
	}
	for _, signature := range wrong {
		h.Set("X-Signature", signature)
		if a := direct(l.inbox, delivery("/webhook", h, body)); a.status != http.StatusUnauthorized || a.code != ichido.CodeSignature {
			t.Errorf("signature %q is answered %d %s", signature, a.status, a.body)
		}
	}
	for _, values := range [][]string{nil, {good, good}, {"", good}, {good, ""}} {
		h["X-Signature"] = values
		direct(l.inbox, delivery("/webhook", h, body)).is(t, http.StatusUnauthorized, ichido.CodeSignature)
	}
	h["X-Signature"] = []string{good}
	post(t, l.url, h, body+" ").is(t, http.StatusUnauthorized, ichido.CodeSignature)
	l.holds(t, 0, 0)
	post(t, l.url, h, body).says(t, first)
}

func testFreshness(t *testing.T) {
	tolerance := func(d time.Duration) *time.Duration { return &d }
	for _, c := range []struct {
		what      string
		tolerance *time.Duration
		seconds   int
	}{{"default", nil, 300}, {"one second", tolerance(time.Second), 1}, {"an hour", tolerance(time.Hour), 3600}} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newSource(t, "hmac", provider.Config{Secrets: secrets(ledgerSecret), Tolerance: c.tolerance})
				src.Handler = accept
				in := newInbox(t, openMemory(), src)
				send := func(off int, status int) {
					t.Helper()
					body := paid(fmt.Sprintf("evt_%d_%d", off, time.Now().Nanosecond()), 1)
					h := stamped(time.Unix(time.Now().Unix()+int64(off), 0), body)
					if a := direct(in, delivery("/webhook", h, body)); a.status != status {
						t.Errorf("a timestamp off by %d s is answered %d, want %d", off, a.status, status)
					}
				}
				for _, part := range []time.Duration{0, 999 * time.Millisecond} { // wherever in the second it is now
					time.Sleep(part)
					for _, sign := range []int{-1, 1} {
						send(sign*c.seconds, http.StatusOK)
						send(sign*(c.seconds+1), http.StatusUnauthorized)
						send(sign*(c.seconds-1), http.StatusOK)
						send(sign*86_400, http.StatusUnauthorized)
					}
					send(0, http.StatusOK)
				}
				// Times far away do not wrap around.
				for _, text := range []string{"100000000", "99999999999", "9223372036", "2147483648"} {
					body := paid("evt_far", 1)
					h := http.Header{"X-Timestamp": {text}, "X-Signature": {mac(text + "." + body)}}
					direct(in, delivery("/webhook", h, body)).is(t, http.StatusUnauthorized, ichido.CodeSignature)
				}
				// What was fresh when it was sent is stale when it comes back.
				body := paid("evt_old", 1)
				h := stamped(time.Now(), body)
				time.Sleep(time.Duration(c.seconds+2) * time.Second)
				direct(in, delivery("/webhook", h, body)).is(t, http.StatusUnauthorized, ichido.CodeSignature)
			})
		})
	}
	for _, d := range []time.Duration{0, -1, -time.Second, time.Nanosecond, 1500 * time.Millisecond, time.Hour + time.Second} {
		if _, err := provider.New("hmac", provider.Config{Secrets: secrets(ledgerSecret), Tolerance: &d}); err == nil || !strings.Contains(err.Error(), "tolerance") {
			t.Errorf("a tolerance of %s is taken: %v", d, err)
		}
	}
}

func testInitialisation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	for round := range 3 {
		t.Run(fmt.Sprint("start ", round+1), func(t *testing.T) {
			s := openSQLite(t, path)
			l := newLedger(t, s)
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					if err := makeTotal(s.db); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			l.holds(t, int64(10*round), round)
			l.send(t, paid(fmt.Sprint("evt_", round), 10)).says(t, first)
			l.send(t, paid("evt_0", 10)).says(t, again)
			l.holds(t, int64(10*(round+1)), round+1)
		})
	}
	// One file holds both, and the total is one row.
	var rows, tables int
	db := openDB(t, path)
	if err := db.QueryRow("SELECT count(*) FROM total").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("total has %d rows, %v", rows, err)
	}
	if err := db.QueryRow("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND (name = 'total' OR name LIKE 'ichido%')").Scan(&tables); err != nil || tables < 2 {
		t.Errorf("%d tables are in the file, %v; want the total beside the inbox", tables, err)
	}
}

func testAppliedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *testStore) {
		l := newLedger(t, s)
		// No event: nothing is kept of it, and a good one with its id is new.
		for _, body := range []string{
			`{"id":"","amount":5}`, `{"amount":5}`, `{"id":null,"amount":5}`, `{"id":5,"amount":5}`, `{"id":["evt_1"],"amount":5}`,
			`{"id":"evt_1","amount":0}`, `{"id":"evt_1","amount":-5}`, `{"id":"evt_1","amount":true}`, `{"id":"evt_1","amount":false}`,
			`{"id":"evt_1","amount":"5"}`, `{"id":"evt_1","amount":5.5}`, `{"id":"evt_1","amount":5.0}`, `{"id":"evt_1","amount":5e0}`,
			`{"id":"evt_1","amount":null}`, `{"id":"evt_1","amount":[5]}`, `{"id":"evt_1","amount":{}}`, `{"id":"evt_1","amount":9223372036854775808}`,
			`[]`, `"evt_1"`, `5`, `{"id":"evt_1"}`,
		} {
			if a := l.send(t, body); a.status != http.StatusConflict || a.code != ichido.CodeRejected {
				t.Errorf("%s is answered %d %s", body, a.status, a.body)
			}
		}
		l.holds(t, 0, 0)

		// New, and then the same in every spelling: members that do not count,
		// order and white space make no difference.
		l.send(t, paid("evt_1", 500)).says(t, first)
		for _, body := range []string{
			paid("evt_1", 500), `{"amount":500,"id":"evt_1"}`, "{ \"id\" : \"evt_1\" ,\n\"amount\":500 }", `{"id":"\u0065vt_1","amount":500}`,
			`{"id":"evt_1","amount":500,"note":"sent again"}`,
		} {
			l.send(t, body).says(t, again)
		}
		l.holds(t, 500, 1)

		// The same id with another amount is a conflict, and changes nothing.
		for _, amount := range []int64{501, 5000, 1} {
			l.send(t, paid("evt_1", amount)).is(t, http.StatusConflict, ichido.CodeConflict)
		}
		l.send(t, paid("evt_1", 500)).says(t, again)
		l.holds(t, 500, 1)

		// Amounts are exact: 2^53 and 2^53+1 are not the same number.
		l.send(t, paid("evt_2", 1<<53)).says(t, first)
		l.send(t, paid("evt_2", 1<<53+1)).is(t, http.StatusConflict, ichido.CodeConflict)
		l.send(t, paid("evt_2", 1<<53)).says(t, again)
		l.holds(t, 500+1<<53, 2)
	})
	t.Run("at the same time", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			l := newLedger(t, s)
			const payments, copies = 8, 8
			answers := make(chan string, payments*copies)
			for n := range payments {
				for range copies {
					go func() {
						body := paid(fmt.Sprint("evt_", n), int64(n+1))
						a, err := try(l.url, stamped(time.Now(), body), strings.NewReader(body))
						answers <- fmt.Sprint(strings.TrimSpace(a.body), err)
					}()
				}
			}
			count := map[string]int{}
			for range payments * copies {
				count[await(t, answers, "an answer")]++
			}
			if count[first+"<nil>"] != payments || count[again+"<nil>"] != payments*(copies-1) {
				t.Errorf("answers were %v", count)
			}
			l.holds(t, payments*(payments+1)/2, payments)
		})
	})
}
