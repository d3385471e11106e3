package provider

import (
	"errors"
	"strings"
	"testing"

	"ichido.dev/ichido"
)

func inspectorOf(t *testing.T, profile string) ichido.Inspector {
	t.Helper()
	source, err := New(profile, Config{Secrets: secrets(textSecret)})
	if err != nil {
		t.Fatal(err)
	}
	return source.Provider.(ichido.Inspector)
}

func codeOf(err error) string {
	var e *ichido.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// pushBody is what a push delivery has at the top level.
const pushBody = `{"ref":"refs/heads/main","before":"a","after":"b","base_ref":null,"compare":"c","created":false,"deleted":false,"forced":false,"commits":[],"head_commit":null,"pusher":{"name":"x"},"repository":{"id":1,"full_name":"o/r"},"sender":{"id":1}}`

func TestRequiredFieldsOfGitHubEvents(t *testing.T) {
	in := inspectorOf(t, "github")
	del := `{"ref":"x","ref_type":"branch","pusher_type":"user","repository":{"id":1,"full_name":"o/r"},"sender":{"id":1}}`
	opened := `{"action":"opened","number":1,"pull_request":{"id":1},"repository":{"id":1,"full_name":"o/r"},"sender":{"id":1}}`
	tests := []struct{ name, event, body, code string }{
		{"push as push", "push", pushBody, ""},
		{"push as delete: no ref_type", "delete", pushBody, ichido.CodeNotAllowed},
		{"delete as delete", "delete", del, ""},
		{"delete as push", "push", del, ichido.CodeNotAllowed},
		{"delete as create: no master_branch", "create", del, ichido.CodeNotAllowed},
		{"pull request", "pull_request", opened, ""},
		{"as an issue", "issues", opened, ichido.CodeNotAllowed},
		{"without its action", "pull_request", strings.Replace(opened, `"action":"opened",`, "", 1), ichido.CodeNotAllowed},
		{"a new action", "pull_request", strings.Replace(opened, "opened", "teleported", 1), ""},
		{"a new action without what all have", "pull_request", `{"action":"teleported"}`, ichido.CodeNotAllowed},
		{"an event that is not in the table", "teleport", `{"a":1}`, ""},
		{"no event", "", `{"a":1}`, ""},
		{"a repository without an id", "push", strings.Replace(pushBody, `"id":1,"full`, `"full`, 1), ichido.CodeNotAllowed},
		{"a repository that is text", "push", strings.Replace(pushBody, `{"id":1,"full_name":"o/r"}`, `"o/r"`, 1), ichido.CodeNotAllowed},
		{"an array", "push", `[]`, ichido.CodeNotAllowed},
		{"not JSON", "push", `hello`, ichido.CodeUnreadable},
		{"a member twice", "push", strings.Replace(pushBody, `{"ref"`, `{"ref":"x","ref"`, 1), ichido.CodeUnreadable},
		{"a member twice, deep down", "push", strings.Replace(pushBody, `{"name":"x"}`, `{"name":"x","name":"y"}`, 1), ichido.CodeUnreadable},
		{"text after the value", "push", pushBody + "x", ichido.CodeUnreadable},
		{"two values", "push", pushBody + pushBody, ichido.CodeUnreadable},
		{"invalid UTF-8", "push", strings.Replace(pushBody, "main", "m\xffin", 1), ichido.CodeUnreadable},
		{"a lone surrogate", "push", strings.Replace(pushBody, "main", `\ud800`, 1), ichido.CodeUnreadable},
		{"NaN", "push", `{"a":NaN}`, ichido.CodeUnreadable},
		{"white space around", "push", " \n" + pushBody + "\r\n", ""},
		{"a NUL escape", "push", strings.Replace(pushBody, "main", `\u0000`, 1), ""},
		{"empty", "push", "", ichido.CodeUnreadable},
		{"a form without payload", "push", "a=b", ichido.CodeUnreadable},
		{"a malformed form", "push", "payload=%zz", ichido.CodeUnreadable},
		{"a form around a push", "push", "payload=" + escape(pushBody), ""},
		{"a form around a push as delete", "delete", "payload=" + escape(pushBody), ichido.CodeNotAllowed},
		{"a form around no JSON", "push", "payload=hello", ichido.CodeUnreadable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			payload, err := in.Inspect(tt.event, []byte(tt.body))
			if codeOf(err) != tt.code {
				t.Errorf("got %v, want code %q", err, tt.code)
			}
			if (payload != nil) != (tt.code == "") {
				t.Errorf("payload is %q", payload)
			}
		})
	}
}

func escape(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		const digits = "0123456789ABCDEF"
		b.WriteString("%" + string(digits[c>>4]) + string(digits[c&15]))
	}
	return b.String()
}

func TestTableOfGitHubEvents(t *testing.T) {
	table, err := githubFields()
	if err != nil {
		t.Fatal(err)
	}
	if len(table.events) < 60 {
		t.Errorf("only %d events", len(table.events))
	}
	for _, name := range []string{"push", "create", "delete", "ping", "pull_request", "issues", "issue_comment", "release", "workflow_run", "check_suite", "installation"} {
		if table.events[name] == nil {
			t.Errorf("no event %s", name)
		}
	}
	for _, bad := range []string{"", "# only a comment\n", "push\n"} {
		if _, err := parseFields(bad); err == nil {
			t.Errorf("the table %q is accepted", bad)
		}
	}
}

func TestJSONViews(t *testing.T) {
	tests := []struct{ profile, body, payload, code string }{
		{"slack", "token=x&command=%2Fa&text=hi", "", ""},
		{"slack", "payload=%7B%22type%22%3A%22block_actions%22%7D", `{"type":"block_actions"}`, ""},
		{"slack", "payload=a&payload=b", "", ichido.CodeUnreadable},
		{"slack", `{"type":"x"}`, `{"type":"x"}`, ""},
		{"stripe", "\xef\xbb\xbf{}", "{}", ""},
		{"stripe", "\xef\xbb\xbf\xef\xbb\xbf{}", "", ichido.CodeUnreadable},
		{"stripe", "a=b", "", ichido.CodeUnreadable},
		{"hmac", `{"id":`, "", ichido.CodeUnreadable},
	}
	for _, tt := range tests {
		payload, err := inspectorOf(t, tt.profile).Inspect("", []byte(tt.body))
		if codeOf(err) != tt.code || string(payload) != tt.payload {
			t.Errorf("%s %q: %q, %v", tt.profile, tt.body, payload, err)
		}
	}
}

// Slack sends JSON and forms under one URL. What the bytes are decides how they
// are read; the Content-Type, which is not signed, does not.
func TestContentTypeDoesNotMakeAnotherEvent(t *testing.T) {
	for _, body := range []string{`{"event_id":"Ev1","type":"event_callback"}`, "command=%2Fa&trigger_id=T1", "payload=%7B%22type%22%3A%22block_actions%22%7D"} {
		keys := map[string]bool{}
		for _, ct := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""} {
			p, err := receive(t, "slack", Config{}, body, "Content-Type", ct)
			if err != nil || p.Unreadable != "" {
				t.Fatalf("%+v, %v", p, err)
			}
			keys[p.Key] = true
		}
		if len(keys) != 1 {
			t.Errorf("%s: %d events", body, len(keys))
		}
	}
	p, err := receive(t, "slack", Config{}, "command=%2Fa&trigger_id=T1")
	if err != nil || p.ID != "T1" || p.Type != "/a" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = receive(t, "slack", Config{}, "trigger_id=T1&trigger_id=T2"); err != nil || p.Unreadable == "" {
		t.Errorf("two trigger ids: %+v, %v", p, err)
	}
}
