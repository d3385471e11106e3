package ichido_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// splitting is a provider whose deliveries are arrays of events, each with an
// id, a type, and what its proof says.
type splitting struct{ testProvider }

func (splitting) Split(d *ichido.Delivery, whole ichido.Proof) ([]ichido.Proof, error) {
	var delivery struct{ Events []json.RawMessage }
	if err := json.Unmarshal(d.Body, &delivery); err != nil {
		return nil, err
	}
	var proofs []ichido.Proof
	for _, raw := range delivery.Events {
		var e struct{ ID, Type, Denied, Ignored, Unreadable string }
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, err
		}
		p := whole
		p.ID, p.Key, p.Type, p.Stored, p.Fingerprint = e.ID, e.ID, e.Type, raw, sha256.Sum256(raw)
		p.Denied, p.Ignored, p.Unreadable = e.Denied, e.Ignored, e.Unreadable
		proofs = append(proofs, p)
	}
	return proofs, nil
}

// deliverSplit sends events as one delivery and returns its answer, and what
// is stored afterwards as "key state outcome".
func deliverSplit(t *testing.T, in *ichido.Inbox, store *memory.Store, events string) (*httptest.ResponseRecorder, []string) {
	t.Helper()
	w := do(in, signed(`{"id":"batch","events":[`+events+`]}`))
	records, err := store.List(context.Background(), ichido.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var stored []string
	for _, rec := range records {
		stored = append(stored, rec.Key+" "+string(rec.State)+" "+rec.Outcome)
	}
	slices.Sort(stored)
	return w, stored
}

func TestEachEventOfADeliveryIsJudgedAsIfItCameAlone(t *testing.T) {
	const (
		good       = `{"id":"a","type":"paid"}`
		denied     = `{"id":"b","type":"paid","denied":"not in the list"}`
		ignored    = `{"id":"c","type":"paid","ignored":"nothing to do"}`
		unhandled  = `{"id":"d","type":"other"}`
		unreadable = `{"id":"e","type":"paid","unreadable":"no amount"}`
	)
	for _, test := range []struct {
		name   string
		source ichido.Source
		events string
		code   int
		answer string
		stored []string
	}{
		{"good", ichido.Source{}, good, 200, `"duplicate":false,"id"`, []string{"a pending ", "batch done split"}},
		{"good and denied", ichido.Source{}, good + "," + denied, 200, `"duplicate":false,"id"`, []string{"a pending ", "batch done split"}},
		{"only denied", ichido.Source{}, denied, 403, `"event_not_allowed"`, nil},
		{"denied and ignored", ichido.Source{}, denied + "," + ignored, 403, `"event_not_allowed"`, nil},
		{"ignored and unhandled", ichido.Source{}, ignored + "," + unhandled, 200, `"ignored":true`, nil},
		{"good and unhandled", ichido.Source{}, good + "," + unhandled, 200, `"duplicate":false,"id"`, []string{"a pending ", "batch done split"}},
		{"good and unreadable", ichido.Source{}, good + "," + unreadable, 400, `"payload_unreadable"`, []string{"a pending ", "batch done split", "e quarantined "}},
		{"accepted unreadable", ichido.Source{AcceptUnreadable: true}, unreadable, 200, `"quarantined":true`, []string{"batch done split", "e quarantined "}},
		{"empty", ichido.Source{}, "", 200, `"duplicate":false,"id"`, []string{"batch pending "}},
	} {
		test.source.Provider = splitting{}
		test.source.Handles = func(eventType string) bool { return eventType != "other" }
		store := memory.New(memory.Options{})
		w, stored := deliverSplit(t, newInbox(t, store, test.source), store, test.events)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.answer) {
			t.Errorf("%s: answered %d %s, want %d and %s", test.name, w.Code, w.Body, test.code, test.answer)
		}
		if diff := cmp.Diff(test.stored, stored); diff != "" {
			t.Errorf("%s: stored (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestEveryConflictOfADeliveryIsQuarantinedAndTheRestIsStored(t *testing.T) {
	for _, accept := range []bool{false, true} {
		store := memory.New(memory.Options{})
		in := newInbox(t, store, ichido.Source{Provider: splitting{}, AcceptConflict: accept})
		deliverSplit(t, in, store, `{"id":"a","type":"paid"},{"id":"b","type":"paid"}`)
		w, stored := deliverSplit(t, in, store, `{"id":"a","type":"lost"},{"id":"b","type":"lost"},{"id":"c","type":"paid"}`)
		want := []string{"a pending ", "a quarantined ", "b pending ", "b quarantined ", "batch done split", "batch done split", "c pending "}
		code := 409
		if accept {
			code = 200
		}
		if w, _ := deliverSplit(t, in, store, `{"id":"a","type":"paid"},{"id":"b","type":"paid"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"duplicate":true`) {
			t.Errorf("accept=%v: the first delivery again answered %d %s", accept, w.Code, w.Body)
		}
		if diff := cmp.Diff(want, stored); w.Code != code || diff != "" {
			t.Errorf("accept=%v: answered %d %s, want %d; stored (-want +got):\n%s", accept, w.Code, w.Body, code, diff)
		}
	}
}
