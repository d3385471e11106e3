package confirm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/loopback"
	"ichido.dev/ichido/internal/outbound"
)

// GeminiOptions sets up a confirmation by the Gemini API.
type GeminiOptions struct {
	// APIKey is sent in the header x-goog-api-key, never in a URL.
	APIKey string

	// BaseURL is "https://generativelanguage.googleapis.com" by default. Plain
	// http is accepted for this machine only.
	BaseURL string

	// NotFoundFor is how long after it was received an event may name
	// something that the API does not know yet: 10 minutes by default.
	NotFoundFor time.Duration

	// MaxBytes is the largest answer that is accepted: 1 MiB by default. A
	// batch with its responses inline may need more.
	MaxBytes int64

	// Allow names private addresses and hosts that may be reached, as CIDR
	// prefixes, addresses or host names. A BaseURL with an address, or
	// localhost, for its host needs no entry.
	Allow []string

	// Client, when set, sends the requests, and Allow is not used.
	Client *http.Client
}

// knownFor is how long a name that the API does not know is taken for a false
// one. An event that is older may name what the API has since deleted.
const knownFor = 24 * time.Hour

// Gemini returns a confirmation that asks the Gemini API for the operation,
// batch or interaction that a payload names: in operation.name, name,
// data.name or data.id. It asks for it with GET v1beta/{name}.
//
//	the API says                       the event is
//	operation or batch, done           confirmed, whatever the outcome,
//	                                   unless its type claims another one
//	operation or batch, not done       not yet
//	interaction completed, failed,     confirmed, unless its type claims
//	  cancelled, incomplete, or        another outcome
//	  budget_exceeded
//	interaction requires_action        confirmed if that is its type, else
//	                                   not yet
//	interaction, any other status      not yet
//	404, event younger than            not yet
//	  NotFoundFor
//	404, up to 24 hours                refuted
//	404, older                         dead letter: what it names may be
//	                                   deleted by now
//	429, 408, 5xx                      failed attempt, Retry-After or
//	                                   RetryInfo honoured
//	400, 401, 403 and all others       failed attempt: check the API key
//
// These types claim an outcome: batch.succeeded, batch.failed,
// batch.cancelled, batch.expired, interaction.completed (also incomplete and
// budget_exceeded), interaction.failed (likewise), interaction.cancelled and
// interaction.requires_action. Where the API says another, the event is
// refuted. The documentation says of video.generated only that the operation
// is completed; so do types that are not listed, and events without a type.
//
// A data.id that is only an id ("abc" instead of "batches/abc") belongs to the
// collection of its type: batch., interaction. or video.
//
// Shapes and states are those of the Gemini API's reference, v1beta, as of
// 2026: google.longrunning.Operation, GenerateContentBatch, Interaction.
func Gemini(o GeminiOptions) (func(context.Context, *ichido.Event) ([]byte, error), error) {
	g, err := newGemini(o)
	if err != nil {
		return nil, fmt.Errorf("confirm with Gemini: %w", err)
	}
	return func(ctx context.Context, e *ichido.Event) ([]byte, error) {
		return g.confirm(ctx, factsOf(e))
	}, nil
}

type gemini struct {
	*asker
	base        string
	target      string // what may be shown of base
	notFoundFor time.Duration
}

func newGemini(o GeminiOptions) (*gemini, error) {
	if !secretText(o.APIKey) || len(o.APIKey) < 8 {
		return nil, errors.New("the API key must be at least 8 printable characters without spaces")
	}
	if o.BaseURL == "" {
		o.BaseURL = "https://generativelanguage.googleapis.com"
	}
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New(`the base URL must be of the form "https://host"`)
	}
	if base.Scheme != "https" && (base.Scheme != "http" || !loopback.Is(base.Hostname())) {
		return nil, errors.New("the base URL must be https: the API key is sent to it")
	}
	if o.NotFoundFor < 0 {
		return nil, errors.New("NotFoundFor must not be negative")
	}
	if o.NotFoundFor == 0 {
		o.NotFoundFor = 10 * time.Minute
	}
	header := http.Header{"X-Goog-Api-Key": {o.APIKey}, "Accept": {"application/json"}, "User-Agent": {"ichido"}}
	a, err := newAsker(o.Client, o.Allow, base, header, o.MaxBytes)
	if err != nil {
		return nil, err
	}
	return &gemini{a, strings.TrimSuffix(base.String(), "/"), outbound.Target(base), o.NotFoundFor}, nil
}

func (g *gemini) confirm(ctx context.Context, f *facts) ([]byte, error) {
	state, err := g.ask(ctx, f)
	if err != nil {
		err = fmt.Errorf("confirm with Gemini: %w", err)
	}
	return state, err
}

func (g *gemini) ask(ctx context.Context, f *facts) ([]byte, error) {
	name, err := findName(f)
	if err != nil {
		return nil, ichido.Permanent(err)
	}
	answer, err := g.get(ctx, g.base+"/v1beta/"+name.String(), f.attempt)
	if err != nil {
		return nil, err
	}
	switch answer.Status {
	case http.StatusOK:
		err := name.judge(f.eventType, answer.Body)
		if err != nil && !errors.Is(err, ichido.ErrRefuted) {
			return nil, err
		}
		return answer.Body, err
	case http.StatusNotFound:
		return nil, g.notFound(name, time.Since(f.receivedAt))
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s answered %d: check the API key, and that it is of the same project", g.target, answer.Status)
	}
	return nil, fmt.Errorf("%s answered %d", g.target, answer.Status)
}

// notFound decides about an event, of a certain age, that names something
// which the API does not know.
func (g *gemini) notFound(name resource, age time.Duration) error {
	switch {
	case age < g.notFoundFor:
		return fmt.Errorf("the API does not know what the event names: %w", ichido.ErrNotYet)
	case name.guessed:
		return ichido.Permanent(fmt.Errorf("the API has nothing in %s with the event's id, which does not say in which collection it is", name.collection()))
	case age < knownFor:
		return fmt.Errorf("the API does not know what the event names: %w", ichido.ErrRefuted)
	}
	return ichido.Permanent(errors.New("the API does not know what the event names, or not any more"))
}

// claims lists which outcomes an event type claims.
var claims = [...]struct{ eventType, outcomes string }{
	{"batch.succeeded", "succeeded"},
	{"batch.failed", "failed"},
	{"batch.cancelled", "cancelled"},
	{"batch.expired", "expired"},
	{"interaction.completed", "completed incomplete budget_exceeded"},
	{"interaction.failed", "failed incomplete budget_exceeded"},
	{"interaction.cancelled", "cancelled"},
	{"interaction.requires_action", "requires_action"},
}

// statuses lists the statuses of an interaction that do not change any more.
// requires_action is not one: it waits for somebody.
var statuses = [...]string{"completed", "failed", "cancelled", "incomplete", "budget_exceeded"}

// judge returns nil when the API's answer confirms an event of this type.
func (r resource) judge(eventType string, body []byte) error {
	if !json.Valid(body) {
		return errors.New("the API's answer is not JSON")
	}
	outcome, err := "", error(nil)
	if r.collection() == interactions {
		outcome, err = r.interactionOutcome(eventType, body)
	} else {
		outcome, err = r.operationOutcome(body)
	}
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.eventType != eventType || outcome == "" || slices.Contains(strings.Fields(c.outcomes), outcome) {
			continue
		}
		return fmt.Errorf("the event says %s, the API says %s: %w", eventType, outcome, ichido.ErrRefuted)
	}
	return nil
}

// interactionOutcome reads an Interaction: its status, once it has settled.
func (r resource) interactionOutcome(eventType string, body []byte) (string, error) {
	if strings.TrimPrefix(stringAt(body, "id"), interactions+"/") != r.id() {
		return "", errors.New("the API's answer is about something else")
	}
	status := stringAt(body, "status")
	if status == "requires_action" && eventType == "interaction.requires_action" {
		return status, nil
	}
	if slices.Contains(statuses[:], status) {
		return status, nil
	}
	return "", fmt.Errorf("the interaction is not completed: %w", ichido.ErrNotYet)
}

// operationOutcome reads an Operation, once it is done. A batch is one whose
// metadata has a state. The outcome is "" when the answer does not tell.
func (r resource) operationOutcome(body []byte) (string, error) {
	if stringAt(body, "name") != r.String() {
		return "", errors.New("the API's answer is about something else")
	}
	if done, _ := member(body, "done"); string(done) != "true" {
		return "", fmt.Errorf("it is not done: %w", ichido.ErrNotYet)
	}
	state := stringAt(body, "metadata", "state")
	state = strings.TrimPrefix(strings.TrimPrefix(state, "BATCH_STATE_"), "JOB_STATE_")
	switch state {
	case "SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED":
		return strings.ToLower(state), nil
	}
	if code, failed := member(body, "error", "code"); failed && string(code) == "1" {
		return "cancelled", nil
	}
	if _, failed := member(body, "error"); failed {
		return "failed", nil
	}
	if _, ok := member(body, "response"); ok {
		return "succeeded", nil
	}
	return "", nil
}
