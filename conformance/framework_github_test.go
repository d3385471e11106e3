package conformance

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/provider"
)

// Bodies with the members that GitHub's have; create and delete are of one
// shape, push is of another.
const (
	createBody = `{"ref":"refs/tags/v1","ref_type":"tag","master_branch":"main","description":null,"pusher_type":"user",` +
		`"repository":{"id":42,"full_name":"octo-org/inbox"},"sender":{"id":1,"login":"octocat"}}`
	pushBody = `{"ref":"refs/heads/main","before":"0","after":"1","base_ref":null,"created":false,"deleted":false,"forced":false,` +
		`"compare":"x","commits":[],"head_commit":null,"pusher":{"name":"octocat"},"repository":{"id":42,"full_name":"octo-org/inbox"},"sender":{"id":1}}`
	pingBody    = `{"zen":"Keep it logically awesome.","hook_id":1,"hook":{"id":1}}`
	pingInARepo = `{"zen":"Keep it logically awesome.","hook_id":1,"hook":{"id":1},"repository":{"id":42,"full_name":"octo-org/inbox"}}`
)

func pullRequest(action, repository string) string {
	return `{"action":"` + action + `","number":7,"pull_request":{"id":7,"number":7},"repository":{"id":42,"full_name":"` + repository + `"},"sender":{"id":1}}`
}

func testGitHubPolicy(t *testing.T) {
	t.Run("required fields", testGitHubRequiredFields)
	for _, c := range []struct {
		what     string
		config   provider.Config
		accepted [][2]string // event and body
		refused  [][2]string
	}{
		{
			"unrestricted by default",
			provider.Config{},
			[][2]string{
				{"push", pushBody},
				{"create", createBody},
				{"ping", pingBody},
				{"pull_request", pullRequest("opened", "anyone/anything")},
				{"an_event_of_tomorrow", `{"new":true}`},
			},
			nil,
		},
		{
			"one action",
			provider.Config{AllowedEvents: []string{"pull_request.opened", "pull_request.closed"}},
			[][2]string{{"pull_request", pullRequest("opened", "octo-org/inbox")}, {"pull_request", pullRequest("closed", "octo-org/inbox")}},
			[][2]string{
				{"pull_request", pullRequest("edited", "octo-org/inbox")},
				{"pull_request", `{"number":7}`},
				{"push", pushBody},
				{"ping", pingBody},
				{"issues", pullRequest("opened", "octo-org/inbox")},
			},
		},
		{
			"every action",
			provider.Config{AllowedEvents: []string{"pull_request"}},
			[][2]string{{"pull_request", pullRequest("opened", "octo-org/inbox")}, {"pull_request", pullRequest("closed", "octo-org/inbox")}},
			[][2]string{{"push", pushBody}, {"pull_request_review", pullRequest("opened", "octo-org/inbox")}},
		},
		{
			"one repository",
			provider.Config{AllowedRepositories: []string{"octo-org/inbox"}},
			[][2]string{{"push", pushBody}, {"pull_request", pullRequest("opened", "octo-org/inbox")}, {"pull_request", pullRequest("opened", "Octo-Org/Inbox")}, {"ping", pingInARepo}},
			[][2]string{
				{"pull_request", pullRequest("opened", "octo-org/inbox2")},
				{"pull_request", pullRequest("opened", "evil/octo-org/inbox")},
				{"pull_request", pullRequest("opened", "inbox")},
				{"pull_request", pullRequest("opened", "")},
				{"ping", pingBody},
				{"ping", `{"repository":null}`},
				{"ping", `{"repository":"octo-org/inbox"}`},
			},
		},
		{
			"both",
			provider.Config{AllowedEvents: []string{"push"}, AllowedRepositories: []string{"octo-org/inbox"}},
			[][2]string{{"push", pushBody}},
			[][2]string{{"push", strings.Replace(pushBody, "octo-org/inbox", "octo-org/other", 1)}, {"create", createBody}},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			var handled atomic.Int64
			s := openMemory()
			src := github(t, c.config)
			src.Claims = s.claims
			src.Inline = func(context.Context, http.ResponseWriter, *ichido.Event) error { handled.Add(1); return nil }
			url := serve(t, newInbox(t, s, src))
			for _, d := range c.accepted {
				if a := post(t, url, githubSigned(t, d[0], "", d[1]), d[1]); a.status != http.StatusOK {
					t.Errorf("%s %s is answered %d %s", d[0], d[1], a.status, a.body)
				}
			}
			for _, d := range c.refused {
				if a := post(t, url, githubSigned(t, d[0], "", d[1]), d[1]); a.status != http.StatusForbidden || a.code != ichido.CodeNotAllowed {
					t.Errorf("%s %s is answered %d %s", d[0], d[1], a.status, a.body)
				}
			}
			if n := int(handled.Load()); n != len(c.accepted) {
				t.Errorf("%d handlers ran, want %d", n, len(c.accepted))
			}
		})
	}
}

// testGitHubRequiredFields sends bodies under the type of others.
func testGitHubRequiredFields(t *testing.T) {
	disguised := [][2]string{
		{"delete", pushBody}, // no ref_type
		{"create", pushBody},
		{"push", createBody},
		{"pull_request", pushBody},
		{"issues", pullRequest("opened", "octo-org/inbox")},
		{"delete", `{}`},
	}
	t.Run("in the request", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			src := github(t, provider.Config{})
			src.Handler = func(context.Context, *ichido.Event) error { t.Error("a handler ran"); return nil }
			in := newInbox(t, s, src)
			url := serve(t, in)
			for _, d := range disguised {
				post(t, url, githubSigned(t, d[0], "", d[1]), d[1]).is(t, http.StatusForbidden, ichido.CodeNotAllowed)
			}
			s.work(t, in)()
			if n := len(s.list(t, "github")); n != 0 {
				t.Errorf("%d events are stored", n)
			}
			// A header that names an action, or comes twice, names no type.
			for _, event := range []string{"pull_request.opened", ""} {
				h := githubSigned(t, "push", "", pushBody)
				h["X-Github-Event"] = []string{event}
				if event == "" {
					h["X-Github-Event"] = []string{"push", "delete"}
				}
				if a := post(t, url, h, pushBody); a.status/100 == 2 {
					t.Errorf("X-GitHub-Event %q is answered %d %s", h["X-Github-Event"], a.status, a.body)
				}
			}
		})
	})
	// GitHub does not send again, so its profile acknowledges first and looks
	// later: still before the handler.
	t.Run("in the worker", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			handled := make(chan string, 10)
			src := newSource(t, "github", provider.Config{Secrets: secrets(githubSecret)})
			src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- e.Type(); return nil }
			src.Concurrency = 1
			in := newInbox(t, s, src)
			url := serve(t, in)
			post(t, url, githubSigned(t, "delete", "", pushBody), pushBody).is(t, http.StatusOK, "")
			post(t, url, githubSigned(t, "create", "", createBody), createBody).is(t, http.StatusOK, "")
			stop := s.work(t, in)
			if got := await(t, handled, "the handler of the event that is what it says"); got != "create" {
				t.Errorf("a handler got %s", got)
			}
			stop()
			disguised := s.list(t, "github")[0]
			if disguised.State != ichido.Dead || !strings.HasPrefix(disguised.Cause, ichido.CodeNotAllowed) || len(handled) != 0 {
				t.Errorf("the push that was called delete is %s (%s)", disguised.State, disguised.Cause)
			}
		})
	})
}

func testLookAlikes(t *testing.T) {
	// A body of create has all that delete has: its shape does not tell.
	t.Run("cannot be told apart", func(t *testing.T) {
		got := make(chan *ichido.Event, 2)
		s := openMemory()
		src := github(t, provider.Config{})
		src.Claims = s.claims
		src.Inline = func(_ context.Context, _ http.ResponseWriter, e *ichido.Event) error { got <- e; return nil }
		url := serve(t, newInbox(t, s, src))
		post(t, url, githubSigned(t, "delete", "", createBody), createBody).is(t, http.StatusOK, "")
		if e := await(t, got, "the handler"); e.Type() != "delete" || e.TypeSigned() {
			t.Errorf("the handler got %s, signed: %t", e.Type(), e.TypeSigned())
		}
		// Only what was not received yet can be disguised: the true one is a copy.
		post(t, url, githubSigned(t, "create", "", createBody), createBody).is(t, http.StatusNoContent, "")
	})
	t.Run("apart by endpoint and secret", func(t *testing.T) {
		const deleteSecret = "made-up-secret-for-deletes-8Qd1"
		s := openMemory()
		creates := github(t, provider.Config{Name: "creates", AllowedEvents: []string{"create"}})
		deletes := github(t, provider.Config{Name: "deletes", AllowedEvents: []string{"delete"}, Secrets: secrets(deleteSecret)})
		creates.Handler, deletes.Handler = accept, accept
		mux := http.NewServeMux()
		mux.Handle("/creates", newInbox(t, s, creates))
		mux.Handle("/deletes", newInbox(t, s, deletes))
		url := serve(t, mux)
		h := githubSigned(t, "create", "", createBody)
		post(t, url+"/creates", h, createBody).is(t, http.StatusOK, "")
		h.Set("X-Github-Event", "delete")
		post(t, url+"/creates", h, createBody).is(t, http.StatusForbidden, ichido.CodeNotAllowed)
		post(t, url+"/deletes", h, createBody).is(t, http.StatusUnauthorized, ichido.CodeSignature)
		if n := len(s.list(t, "deletes")); n != 0 {
			t.Errorf("%d events are stored for the endpoint of deletes", n)
		}
	})
	t.Run("confirmed by the API", func(t *testing.T) {
		eachStore(t, func(t *testing.T, s *testStore) {
			gone := make(chan bool, 2) // what the API says about the tag
			api := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/repositories/42/tags" || r.URL.Query().Get("ref") != "v1" {
					t.Errorf("the API was asked for %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				if <-gone {
					w.WriteHeader(http.StatusNotFound)
				}
				w.Write([]byte(`{}`))
			}))
			handled := make(chan string, 2)
			src := github(t, provider.Config{AllowedEvents: []string{"delete"}})
			src.Handler = func(_ context.Context, e *ichido.Event) error { handled <- e.Key(); return nil }
			var err error
			src.Confirm, err = confirm.HTTP(confirm.HTTPOptions{
				URL: api + "/repositories/{payload.repository.id}/tags?ref={payload.ref}", Done: "status == 404", Refuted: "status == 200",
			})
			if err != nil {
				t.Fatal(err)
			}
			in := newInbox(t, s, src)
			url := serve(t, in)
			send := func(body string) {
				post(t, url, githubSigned(t, "delete", "", body), body).is(t, http.StatusOK, "")
			}
			body := strings.Replace(createBody, "refs/tags/v1", "v1", 1)
			gone <- false
			send(body)
			settled := watch(&src)
			in = newInbox(t, s, src)
			stop := s.work(t, in)
			awaitWhat(t, settled, ichido.Refuted)
			if len(handled) != 0 {
				t.Error("the handler of a deletion ran for something that is there")
			}
			gone <- true
			send(strings.Replace(body, `"user"`, `"deploy_key"`, 1))
			await(t, handled, "the handler")
			stop()
			if got := outcomes(s.list(t, "github")); got != "refuted applied" {
				t.Errorf("outcomes are %s", got)
			}
		})
	})
	t.Run("documented", func(t *testing.T) {
		documents(t, providerPage(t, "github"),
			"types of the same shape (create and delete) cannot be told apart, so give each an endpoint and a secret of its own, and ask the API before acting")
		documents(t, goDoc(t, "..", "Event.TypeSigned"), "separate such types by endpoint and secret, or confirm them")
	})
}

// watch has a source tell what happens to its events.
func watch(src *ichido.Source) <-chan string {
	told := make(chan string, 1000)
	src.Observe = func(what, _ string) { told <- what }
	return told
}

func awaitWhat(t *testing.T, told <-chan string, what string) {
	t.Helper()
	for await(t, told, what) != what {
	}
}

func outcomes(records []ichido.Record) string {
	var list []string
	for _, r := range records {
		list = append(list, r.Outcome)
	}
	return strings.Join(list, " ")
}
