package demo

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// altering changes the answers to one kind of delivery.
type altering struct{ from, to string }

func (a altering) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || a.from == "" {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(a.from), []byte(a.to))))
	return res, err
}

func play(t *testing.T, transport http.RoundTripper) *Report {
	t.Helper()
	d, err := Start(t.Context(), Options{Driver: "sqlite", Transport: transport, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	report, err := d.Play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	report.Print(&b)
	t.Log("\n" + b.String())
	return report
}

func TestDemoComesOutRight(t *testing.T) {
	report := play(t, altering{})
	if !report.Fine || len(report.Rows) < 14 || report.Total != 2240 {
		t.Errorf("fine %v, %d rows, ledger %d", report.Fine, len(report.Rows), report.Total)
	}
}

func TestOneAlteredAnswerFailsTheDemo(t *testing.T) {
	if report := play(t, altering{`"duplicate":true`, `"duplicate":false`}); report.Fine {
		t.Error("a duplicate that was answered as new went unnoticed")
	}
}
