package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/memory"
)

// TestDeadCountsEveryDeadLetterAndNamesHeldClaims: there are more than any
// page has.
func TestDeadCountsEveryDeadLetterAndNamesHeldClaims(t *testing.T) {
	store := memory.New(memory.Options{})
	records := make([]ichido.Record, 2500)
	for i := range records {
		r := &records[i]
		*r = ichido.Record{Source: "a", Key: fmt.Sprint(i), State: ichido.Dead, Cause: "many", ReceivedAt: time.UnixMilli(int64(i)).UTC()}
		copy(r.Hash[:], r.Key)
	}
	records[0].Cause = "one"
	if _, err := store.Put(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	if v, _, err := store.Claims().Claim(t.Context(), "held \x1b[31m"); err != nil || v != ichido.Accepted {
		t.Fatalf("claim: %v, %v", v, err)
	}
	want := deadLetters{
		Groups: []deadGroup{
			{"a", "many", 2499, records[2499].ReceivedAt, records[2499].ID()},
			{"a", "one", 1, records[0].ReceivedAt, records[0].ID()},
		},
		Events: 2500, Claims: 1, ClaimKeys: []string{"held \x1b[31m"},
	}
	var out bytes.Buffer
	a := newApp(Env{Stdout: &out})
	a.json = true
	if err := a.printDead(t.Context(), store, &selection{filter: ichido.Filter{State: ichido.Dead}}); err != nil {
		t.Fatal(err)
	}
	var got deadLetters
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("as JSON (-want +got):\n%s", diff)
	}
	out.Reset()
	a.json = false
	if err := a.printDead(t.Context(), store, &selection{filter: ichido.Filter{State: ichido.Dead}}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"2499  ", records[2499].ID(), "1 inline claim(s) held", `"held \x1b[31m"`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("as text there is no %q:\n%s", part, out.String())
		}
	}
}
