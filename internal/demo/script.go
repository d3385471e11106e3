package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

// Row is one line of the table: what was sent, what it should come to, and
// what it came to.
type Row struct {
	What   string `json:"what"`
	Want   string `json:"want"`
	Answer string `json:"answer"` // from the response
	Store  string `json:"store"`  // from the store, when the demo ends
	Fine   bool   `json:"fine"`

	id        string
	wantStore string
}

// Report is the table and the ledger.
type Report struct {
	Rows      []Row   `json:"rows"`
	Total     int64   `json:"ledger_total"`
	Sum       int64   `json:"sum_of_distinct_events"`
	Forwarded int     `json:"forwarded_events"`
	Seconds   float64 `json:"seconds"`
	Fine      bool    `json:"fine"`
}

const (
	amountA, amountB = 1250, 990
	batch            = "batches/demo-1"
	notYet           = "pending: not yet"
)

// delivery is one signed request.
type delivery struct {
	source string
	header http.Header
	body   []byte
}

// sign signs a body as the source's sender would at the given time.
func (d *Demo) sign(source, id string, at time.Time, body []byte) (delivery, error) {
	c := provider.SignConfig{Secret: d.secrets[strings.ToUpper(source)], ID: id, Type: "push", Time: at}
	h, err := provider.Sign(source, c, body)
	return delivery{source, h, body}, err
}

func payment(id string, amount int64) []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"event","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","amount":%d}}}`, id, amount)
}

// script returns the deliveries of the demo with what each should come to.
func (d *Demo) script(now time.Time) ([]Row, []delivery, error) {
	push := []byte(`{"ref":"refs/heads/main","before":"0","after":"1","created":false,"deleted":false,"forced":false,"base_ref":null,` +
		`"compare":"","commits":[],"head_commit":null,"repository":{"id":1,"full_name":"octo/inbox"},"pusher":{"name":"octo"},"sender":{"login":"octo"}}`)
	premature := fmt.Appendf(nil, `{"type":"batch.succeeded","version":"v1","timestamp":%q,"data":{"id":%q}}`, now.UTC().Format(time.RFC3339), batch)
	oversized := payment("evt_demo_big", 1)
	oversized = append(oversized[:len(oversized)-1], `,"pad":"`+strings.Repeat("x", 1<<20)+`"}`...)
	var rows []Row
	var deliveries []delivery
	var errs []error
	add := func(row Row, dl delivery, err error) {
		rows, deliveries, errs = append(rows, row), append(deliveries, dl), append(errs, err)
	}
	stripe := func(id string, at time.Time, body []byte) (delivery, error) { return d.sign("stripe", id, at, body) }
	first, err := stripe("", now, payment("evt_demo_1", amountA))
	add(Row{What: "Stripe payment of 1250", Want: "200 accepted", wantStore: "done/applied"}, first, err)
	second, err := stripe("", now, payment("evt_demo_2", amountB))
	add(Row{What: "Stripe payment of 990", Want: "200 accepted", wantStore: "done/applied"}, second, err)
	pushed, err := d.sign("github", "", now, push)
	add(Row{What: "GitHub push", Want: "200 accepted", wantStore: "done/forwarded"}, pushed, err)
	early, err := d.sign("gemini", "msg_demo_1", now, premature)
	add(Row{What: "Gemini \"batch.succeeded\", too early", Want: "200 accepted", wantStore: notYet}, early, err)

	add(Row{What: "the same Stripe payment again", Want: "200 duplicate", wantStore: "done/applied"}, first, nil)
	resigned, err := stripe("", now.Add(-time.Minute), payment("evt_demo_1", amountA))
	add(Row{What: "the same, signed at another time", Want: "200 duplicate", wantStore: "done/applied"}, resigned, err)
	again := delivery{"github", pushed.header.Clone(), push}
	again.header.Set("X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000")
	add(Row{What: "the same push, another delivery id", Want: "200 duplicate", wantStore: "done/forwarded"}, again, nil)
	add(Row{What: "the same Gemini notification again", Want: "200 duplicate", wantStore: notYet}, early, nil)

	forged := delivery{"stripe", first.header.Clone(), payment("evt_demo_1", 999_999)}
	add(Row{What: "forged: the amount was changed", Want: "401 signature_invalid"}, forged, nil)
	stale, err := stripe("", now.Add(-10*time.Minute), payment("evt_demo_3", 1))
	add(Row{What: "stale: signed ten minutes ago", Want: "401 signature_invalid"}, stale, err)
	future, err := stripe("", now.Add(10*time.Minute), payment("evt_demo_4", 1))
	add(Row{What: "future-dated: signed in ten minutes", Want: "401 signature_invalid"}, future, err)
	big, err := stripe("", now, oversized)
	add(Row{What: "oversized: more than 1 MiB", Want: "413 payload_too_large"}, big, err)
	conflict, err := stripe("", now, payment("evt_demo_1", amountA+1))
	add(Row{What: "one Stripe id, another body", Want: "409 event_conflict", wantStore: "quarantined: event_conflict"}, conflict, err)
	return rows, deliveries, errors.Join(errs...)
}

// Play sends everything, waits until it is worked, and reports. The error is
// about the demo as such; whether everything was right is in the report.
func (d *Demo) Play(ctx context.Context) (*Report, error) {
	begin := time.Now()
	d.gemini.Start(batch)
	rows, deliveries, err := d.script(begin)
	if err != nil {
		return nil, err
	}
	geminiID := ""
	for i := range rows {
		a, err := d.post(ctx, deliveries[i].source, deliveries[i].header.Clone(), deliveries[i].body)
		if err != nil {
			return nil, err
		}
		rows[i].Answer, rows[i].id = fmt.Sprintf("%d %s", a.status, a.word), a.id
		if deliveries[i].source == "gemini" {
			geminiID = a.id
		}
	}
	asked := d.awaitQuestion(ctx)
	for i := range rows {
		if err := d.judge(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	d.gemini.Finish(batch)
	last := Row{What: "Gemini's API says the batch succeeded", Answer: fmt.Sprintf("asked before: %d", asked), wantStore: "done/applied", id: geminiID}
	last.Want = last.Answer
	if asked == 0 {
		last.Want = "asked before: at least 1"
	}
	if err := d.judge(ctx, &last); err != nil {
		return nil, err
	}
	report := &Report{Rows: append(rows, last), Sum: amountA + amountB, Fine: true}
	if err := d.db.QueryRowContext(ctx, "SELECT total FROM ledger WHERE id = 1").Scan(&report.Total); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	d.mu.Lock()
	report.Forwarded = len(d.forwarded)
	d.mu.Unlock()
	report.Seconds = time.Since(begin).Seconds()
	for _, row := range report.Rows {
		report.Fine = report.Fine && row.Fine
	}
	report.Fine = report.Fine && report.Total == report.Sum && report.Forwarded == 1
	return report, nil
}

// judge compares a row with what it should be, waiting for the worker.
func (d *Demo) judge(ctx context.Context, row *Row) (err error) {
	row.Fine = row.Answer == row.Want
	if row.wantStore == "" {
		row.Store = "-"
		if row.id != "" {
			row.Store, row.Fine = "stored as "+row.id, false
		}
		return nil
	}
	id := row.id
	if id == "" {
		if id, err = d.quarantined(ctx); err != nil {
			return err
		}
	}
	if row.Store, err = d.await(ctx, id, row.wantStore); err != nil {
		return err
	}
	row.Fine = row.Fine && row.Store == row.wantStore
	return nil
}

// quarantined returns the id of what is in quarantine, "" when nothing is.
func (d *Demo) quarantined(ctx context.Context) (string, error) {
	records, err := d.store.List(ctx, ichido.Filter{State: ichido.Quarantined})
	if err != nil || len(records) != 1 {
		return "", err
	}
	return records[0].ID(), nil
}

// patience is how long the demo waits for an event to come to its end.
const patience = 30 * time.Second

// await returns an event's state in the store, once it is as wanted or
// patience is over.
func (d *Demo) await(ctx context.Context, id, want string) (state string, err error) {
	for deadline := time.Now().Add(patience); ; {
		state, err = d.inStore(ctx, id)
		if errors.Is(err, ichido.ErrNotFound) {
			state, err = "not stored", nil
		}
		if err != nil || state == want || time.Now().After(deadline) {
			return state, err
		}
		select {
		case <-ctx.Done():
			return state, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitQuestion waits until the Gemini API was asked about the batch, and
// returns how often it was.
func (d *Demo) awaitQuestion(ctx context.Context) int {
	for deadline := time.Now().Add(patience); ; {
		n := d.gemini.Requests(batch)
		if n > 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return n
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Print writes the report as one table.
func (r *Report) Print(w io.Writer) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	fmt.Fprintln(t, "WHAT ARRIVES\tANSWER\tIN THE STORE\t")
	for _, row := range r.Rows {
		verdict := ""
		if !row.Fine {
			verdict = "WRONG, wanted " + row.Want
			if row.wantStore != "" {
				verdict += ", " + row.wantStore
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", row.What, row.Answer, row.Store, verdict)
	}
	t.Flush()
	for line := range bytes.Lines(b.Bytes()) {
		fmt.Fprintln(w, strings.TrimRight(string(line), " \n"))
	}
	verdict := "equal"
	if r.Total != r.Sum {
		verdict = "WRONG"
	}
	fmt.Fprintf(w, "\nledger total %d, sum of the distinct payments %d: %s\n", r.Total, r.Sum, verdict)
	fmt.Fprintf(w, "events at the destination: %d (the push, once)\n", r.Forwarded)
}
