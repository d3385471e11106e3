// Package view is how stored events look to people and programs outside: the
// JSON of the admin API and of the commands' --json, page by page, and what a
// replay did to them.
//
// It decides what is shown, not to whom.
package view

import (
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode/utf8"

	"ichido.dev/ichido"
)

// Event is one stored event. Body, or BodyBase64 when it is not UTF-8, and
// Headers are set where the event was asked for by its id.
type Event struct {
	ID          string              `json:"id"`
	Seq         int64               `json:"seq"`
	Source      string              `json:"source"`
	Key         string              `json:"key"`
	Type        string              `json:"type,omitempty"`
	TypeSigned  bool                `json:"type_signed"`
	State       ichido.State        `json:"state"`
	Outcome     string              `json:"outcome,omitempty"`
	Cause       string              `json:"cause,omitempty"`
	Strength    string              `json:"strength"`
	Scheme      string              `json:"scheme,omitempty"`
	Secret      int                 `json:"secret"` // index of the secret that verified, from 0
	SignedAt    *time.Time          `json:"signed_at,omitempty"`
	ReceivedAt  time.Time           `json:"received_at"`
	DueAt       *time.Time          `json:"due_at,omitempty"`
	SettledAt   *time.Time          `json:"settled_at,omitempty"`
	Attempts    int                 `json:"attempts"`
	Deaths      int                 `json:"deaths,omitempty"`
	Copies      int                 `json:"copies,omitempty"`
	Replays     int                 `json:"replays,omitempty"`
	Size        int64               `json:"size"`
	BodyPurged  bool                `json:"body_purged,omitempty"`
	Fingerprint string              `json:"fingerprint"`
	Headers     map[string][]string `json:"headers,omitempty"`
	Body        *string             `json:"body,omitempty"`
	BodyBase64  []byte              `json:"body_base64,omitempty"`
	Confirmed   json.RawMessage     `json:"confirmed,omitempty"`
}

// OfRecord returns a record as it is shown.
func OfRecord(r *ichido.Record) Event {
	e := Event{
		ID: r.ID(), Seq: r.Seq, Source: r.Source, Key: r.Key, Type: r.Type, TypeSigned: r.TypeSigned,
		State: r.State, Outcome: r.Outcome, Cause: r.Cause, Strength: r.Strength, Scheme: r.Scheme, Secret: r.Secret,
		SignedAt: optional(r.Time), ReceivedAt: r.ReceivedAt.UTC(), SettledAt: optional(r.SettledAt),
		Attempts: r.Attempts, Deaths: r.Deaths, Copies: r.Copies, Replays: r.Replays, Size: r.Size,
		BodyPurged: r.Purged, Fingerprint: hex.EncodeToString(r.Fingerprint[:]), Headers: r.Headers(),
	}
	if r.State == ichido.Pending || r.State == ichido.Claimed {
		e.DueAt = optional(r.Due)
	}
	if r.Outcome == ichido.Applied {
		e.Attempts = max(e.Attempts, 1) // inline, it ran in the request, which nobody counts
	}
	switch {
	case r.Body == nil:
	case utf8.Valid(r.Body):
		text := string(r.Body)
		e.Body = &text
	default:
		e.BodyBase64 = r.Body
	}
	if json.Valid(r.Confirmed) {
		e.Confirmed = r.Confirmed
	}
	return e
}

// Stats is what is stored, counted.
type Stats struct {
	Sources   map[string]map[ichido.State]int `json:"sources"`
	Total     map[ichido.State]int            `json:"total"`
	OldestDue *time.Time                      `json:"oldest_due,omitempty"`
	CountedAt *time.Time                      `json:"counted_at,omitempty"` // where counts are kept for a while
	Purged    int                             `json:"purged"`
	Claims    int                             `json:"claims_held"`
	// ClaimKeys are the oldest of those claims. One that stays here ran its
	// handler, and could not record that it did.
	ClaimKeys []string `json:"claims_held_keys,omitempty"`
}

// OfStats returns counts as they are shown.
func OfStats(s ichido.Stats) Stats {
	v := Stats{
		Sources: s.Counts, Total: map[ichido.State]int{}, OldestDue: optional(s.Oldest), Purged: s.Purged,
		Claims: s.Pending, ClaimKeys: s.PendingKeys,
	}
	for _, states := range s.Counts {
		for state, n := range states {
			v.Total[state] += n
		}
	}
	return v
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}
