// Package standin stands in for other people's services in demos and tests:
// it answers over real HTTP what they document, from a table that the demo or
// the test changes. It is no emulator: it does no work, and knows only the
// requests that ichido makes.
package standin

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// States that [Gemini.Set] gives a resource. Batches and operations have the
// first five, interactions all but Expired.
const (
	Running        = "running"
	Succeeded      = "succeeded"
	Failed         = "failed"
	Cancelled      = "cancelled"
	Expired        = "expired"
	RequiresAction = "requires_action"
)

// Gemini answers GET /v1beta/{name} as the Gemini API does, for long-running
// operations ("operations/1", "models/veo-3/operations/1"), batches
// ("batches/1") and interactions ("interactions/1"). It wants the API key in
// the header x-goog-api-key. It is safe for concurrent use.
type Gemini struct {
	key     string
	started time.Time

	mu       sync.Mutex
	states   map[string]string // guarded by mu; by name
	requests map[string]int    // guarded by mu; by name
}

// NewGemini returns a stand-in that knows no resource yet.
func NewGemini(apiKey string) *Gemini {
	return &Gemini{key: apiKey, started: time.Now(), states: map[string]string{}, requests: map[string]int{}}
}

// Start makes a resource known, as running.
func (g *Gemini) Start(name string) { g.Set(name, Running) }

// Finish ends a resource with success.
func (g *Gemini) Finish(name string) { g.Set(name, Succeeded) }

// Fail ends a resource with a failure.
func (g *Gemini) Fail(name string) { g.Set(name, Failed) }

// Set gives a resource any state.
func (g *Gemini) Set(name, state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.states[name] = state
}

// Requests returns how often a name was asked for with the right key.
func (g *Gemini) Requests(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests[name]
}

// ServeHTTP answers one request.
func (g *Gemini) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/v1beta/")
	key := r.Header.Get("X-Goog-Api-Key")
	switch {
	case key == "":
		refuse(w, http.StatusForbidden, "PERMISSION_DENIED", "the request has no API key")
		return
	case subtle.ConstantTimeCompare([]byte(key), []byte(g.key)) != 1:
		refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", "the API key is not valid")
		return
	case !ok || r.Method != http.MethodGet:
		refuse(w, http.StatusNotFound, "NOT_FOUND", "there is no such method")
		return
	}
	g.mu.Lock()
	g.requests[name]++
	state, known := g.states[name]
	g.mu.Unlock()
	if !known {
		refuse(w, http.StatusNotFound, "NOT_FOUND", "there is no such resource")
		return
	}
	switch {
	case strings.HasPrefix(name, "interactions/"):
		reply(w, http.StatusOK, g.interaction(name, state))
	case strings.HasPrefix(name, "batches/"):
		reply(w, http.StatusOK, g.batch(name, state))
	default:
		reply(w, http.StatusOK, operation(name, state))
	}
}

type object = map[string]any

func reply(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // a client that is gone is no news
}

// refuse answers in the shape of all Google APIs.
func refuse(w http.ResponseWriter, code int, status, message string) {
	reply(w, code, object{"error": object{"code": code, "message": message, "status": status}})
}

// operation is a google.longrunning.Operation of video generation. As in all
// JSON made of protocol buffers, a member that is false is left out.
func operation(name, state string) object {
	o := object{"name": name}
	if state == Running {
		return o
	}
	o["done"] = true
	if state != Succeeded {
		o["error"] = status(state)
		return o
	}
	video := object{"uri": "https://generativelanguage.googleapis.com/v1beta/files/" + path.Base(name) + ":download?alt=media"}
	o["response"] = object{
		"@type":                 "type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse",
		"generateVideoResponse": object{"generatedSamples": []object{{"video": video}}},
	}
	return o
}

// status is the google.rpc.Status of an operation that did not succeed.
func status(state string) object {
	switch state {
	case Cancelled:
		return object{"code": 1, "message": "the operation was cancelled"}
	case Expired:
		return object{"code": 4, "message": "the operation was not done in time"}
	}
	return object{"code": 13, "message": "the operation failed"}
}

// batch is an Operation whose metadata is a GenerateContentBatch. Its counts
// are strings: 64-bit integers are, in JSON made of protocol buffers.
func (g *Gemini) batch(name, state string) object {
	o := operation(name, state)
	metadata := object{
		"@type":       "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
		"name":        name,
		"model":       "models/gemini-2.5-flash",
		"displayName": "stand-in",
		"createTime":  g.started.UTC().Format(time.RFC3339Nano),
		"updateTime":  g.started.UTC().Format(time.RFC3339Nano),
		"batchStats":  object{"requestCount": "2", "pendingRequestCount": "2"},
		"state":       "BATCH_STATE_" + strings.ToUpper(state),
	}
	o["metadata"] = metadata
	if state == Running {
		return o
	}
	metadata["endTime"] = g.started.UTC().Format(time.RFC3339Nano)
	metadata["batchStats"] = object{"requestCount": "2", "failedRequestCount": "2"}
	if state == Succeeded {
		output := object{"responsesFile": "files/batch-" + path.Base(name)}
		metadata["batchStats"] = object{"requestCount": "2", "successfulRequestCount": "2"}
		metadata["output"] = output
		o["response"] = object{
			"@type":         "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatchOutput",
			"responsesFile": output["responsesFile"],
		}
	}
	return o
}

// interaction is an Interaction. Its id is the last segment of its name.
func (g *Gemini) interaction(name, state string) object {
	word := map[string]string{Running: "in_progress", Succeeded: "completed"}[state]
	if word == "" {
		word = state
	}
	o := object{
		"id":      path.Base(name),
		"object":  "interaction",
		"model":   "gemini-2.5-flash",
		"created": g.started.UTC().Format(time.RFC3339),
		"updated": g.started.UTC().Format(time.RFC3339),
		"status":  word,
	}
	if state == Succeeded {
		text := object{"type": "text", "text": "the stand-in's answer"}
		o["steps"] = []object{{"type": "model_output", "content": []object{text}}}
		o["usage"] = object{"total_tokens": 7}
	}
	return o
}
