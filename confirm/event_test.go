package confirm_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/internal/standin"
)

// open is a provider that believes everything: what is tested here is what
// comes after it.
type open struct{}

func (open) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	return ichido.Proof{Scheme: "open", Strength: ichido.Verified, Type: d.Header.Get("X-Type"), Key: "key-1"}, nil
}

func (open) Inspect(_ string, body []byte) ([]byte, error) { return body, nil }

// claims accepts every claim.
type claims struct{}

func (claims) Claim(context.Context, string) (ichido.Verdict, string, error) {
	return ichido.Accepted, "token", nil
}
func (claims) Complete(context.Context, string, string) error { return nil }
func (claims) Release(context.Context, string, string) error  { return nil }

// received posts a body to an inbox, and runs f with the event that comes out.
func received(t *testing.T, eventType, body string, f func(*ichido.Event)) {
	t.Helper()
	ran := false
	inbox, err := ichido.NewInbox(nil, ichido.Source{
		Name: "payments", Provider: open{}, Claims: claims{},
		Inline: func(_ context.Context, w http.ResponseWriter, e *ichido.Event) error {
			ran = true
			f(e)
			w.WriteHeader(http.StatusNoContent)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Type", eventType)
	w := httptest.NewRecorder()
	inbox.ServeHTTP(w, r)
	if !ran {
		t.Fatalf("no event: %d %s", w.Code, w.Body)
	}
}

func TestGeminiConfirmsARealEvent(t *testing.T) {
	api := standin.NewGemini("the-api-key")
	server := httptest.NewServer(api)
	defer server.Close()
	ask, err := confirm.Gemini(confirm.GeminiOptions{APIKey: "the-api-key", BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var source ichido.Source
	source.Confirm = ask // it is what a source takes
	received(t, "batch.succeeded", `{"type":"batch.succeeded","data":{"id":"batches/7"}}`, func(e *ichido.Event) {
		if _, err := source.Confirm(t.Context(), e); !errors.Is(err, ichido.ErrNotYet) {
			t.Errorf("unknown so far: %v", err)
		}
		api.Start("batches/7")
		if _, err := source.Confirm(t.Context(), e); !errors.Is(err, ichido.ErrNotYet) {
			t.Errorf("running: %v", err)
		}
		api.Finish("batches/7")
		state, err := source.Confirm(t.Context(), e)
		if err != nil || !strings.Contains(string(state), `"responsesFile":"files/batch-7"`) {
			t.Errorf("finished: %s, %v", state, err)
		}
		api.Fail("batches/7")
		if _, err := source.Confirm(t.Context(), e); !errors.Is(err, ichido.ErrRefuted) {
			t.Errorf("failed: %v", err)
		}
		if n := api.Requests("batches/7"); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestHTTPConfirmsARealEvent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/v1/payments/pay_1" || r.Header.Get("Authorization") != "Bearer made-up" {
			http.Error(w, r.RequestURI, http.StatusBadRequest)
			return
		}
		w.Write([]byte(`{"id":"pay_1","status":"paid","amount":1000}`))
	}))
	defer server.Close()
	ask, err := confirm.HTTP(confirm.HTTPOptions{
		URL:     server.URL + "/v1/payments/{payload.data.id}",
		Headers: map[string]string{"Authorization": "Bearer made-up"},
		Done:    `body.status == "paid" && body.amount == event.payload.data.amount && event.source == "payments" && event.key == "key-1"`,
		Refuted: `status == 404 || body.status in ["failed", "void"]`,
	})
	if err != nil {
		t.Fatal(err)
	}
	received(t, "payment.paid", `{"data":{"id":"pay_1","amount":1000}}`, func(e *ichido.Event) {
		state, err := ask(t.Context(), e)
		if err != nil || string(state) != `{"id":"pay_1","status":"paid","amount":1000}` {
			t.Errorf("state %s, %v", state, err)
		}
	})
}
