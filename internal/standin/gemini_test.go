package standin

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// get asks a server for a path with a key, and returns the status and the
// members of the answer that are named, flattened.
func get(t *testing.T, server *httptest.Server, path, key string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("x-goog-api-key", key)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return resp.StatusCode, body
}

func TestAKeyIsNeededBeforeAnythingIsSaid(t *testing.T) {
	g := NewGemini("the-key")
	g.Finish("batches/1")
	server := httptest.NewServer(g)
	defer server.Close()
	for _, c := range []struct {
		path, key string
		want      int
		status    string
	}{
		{"/v1beta/batches/1", "", 403, "PERMISSION_DENIED"},
		{"/v1beta/batches/1?key=the-key", "", 403, "PERMISSION_DENIED"},
		{"/v1beta/batches/1", "other", 400, "INVALID_ARGUMENT"},
		{"/v1beta/batches/2", "the-key", 404, "NOT_FOUND"},
		{"/v1/batches/1", "the-key", 404, "NOT_FOUND"},
	} {
		code, body := get(t, server, c.path, c.key)
		e, _ := body["error"].(map[string]any)
		if code != c.want || e["status"] != c.status || e["code"] != float64(c.want) {
			t.Errorf("%s with key %q: %d %v", c.path, c.key, code, body)
		}
	}
	if n := g.Requests("batches/1"); n != 0 {
		t.Errorf("%d requests without the key were counted", n)
	}
}

func TestResourcesAdvance(t *testing.T) {
	g := NewGemini("k")
	server := httptest.NewServer(g)
	defer server.Close()
	type facts struct {
		Done, Status, State any
		Error, Response     bool
	}
	for _, c := range []struct {
		name, state string
		want        facts
	}{
		{"operations/1", Running, facts{}},
		{"operations/1", Succeeded, facts{Done: true, Response: true}},
		{"models/veo-3/operations/a1", Failed, facts{Done: true, Error: true}},
		{"batches/1", Running, facts{State: "BATCH_STATE_RUNNING"}},
		{"batches/1", Succeeded, facts{Done: true, State: "BATCH_STATE_SUCCEEDED", Response: true}},
		{"batches/2", Expired, facts{Done: true, State: "BATCH_STATE_EXPIRED", Error: true}},
		{"batches/3", Cancelled, facts{Done: true, State: "BATCH_STATE_CANCELLED", Error: true}},
		{"interactions/v1_a", Running, facts{Status: "in_progress"}},
		{"interactions/v1_a", RequiresAction, facts{Status: "requires_action"}},
		{"interactions/v1_a", Succeeded, facts{Status: "completed"}},
		{"interactions/v1_b", Failed, facts{Status: "failed"}},
	} {
		g.Set(c.name, c.state)
		code, body := get(t, server, "/v1beta/"+c.name, "k")
		got := facts{Done: body["done"], Status: body["status"]}
		if m, ok := body["metadata"].(map[string]any); ok {
			got.State = m["state"]
		}
		_, got.Error = body["error"]
		_, got.Response = body["response"]
		if diff := cmp.Diff(c.want, got); code != 200 || diff != "" {
			t.Errorf("%s %s: %d (-want +got):\n%s", c.name, c.state, code, diff)
		}
		if body["name"] != c.name && "interactions/"+body["id"].(string) != c.name {
			t.Errorf("%s: the answer names %v, %v", c.name, body["name"], body["id"])
		}
	}
	g.Start("batches/9")
	g.Finish("batches/9")
	if _, body := get(t, server, "/v1beta/batches/9", "k"); body["done"] != true || g.Requests("batches/9") != 1 {
		t.Errorf("finished batch: %v, %d requests", body, g.Requests("batches/9"))
	}
	g.Fail("batches/9")
	if _, body := get(t, server, "/v1beta/batches/9", "k"); body["error"] == nil {
		t.Errorf("failed batch: %v", body)
	}
}
