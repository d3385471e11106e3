package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/view"
)

// adminHandler answers on the admin listener. Health and metrics are open,
// everything else needs a token whose hash is configured.
func (g *Gateway) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", g.live)
	mux.HandleFunc("GET /readyz", g.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	page := append(filters(), "before", "limit")
	mux.HandleFunc("GET /v1/stats", g.guard(reading(g.getStats)))
	mux.HandleFunc("GET /v1/events", g.guard(reading(g.getEvents, page...)))
	mux.HandleFunc("GET /v1/events/{id}", g.guard(reading(g.getEvent)))
	mux.HandleFunc("POST /v1/replay", g.guard(reading(g.postReplay, append(page, "dry_run")...)))
	unknown := g.guard(noRoute)
	mux.Handle("/", unknown)
	return timed(http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !spelt(r) {
			unknown(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})))
}

// spelt reports whether a path is in the only spelling that routes have. For
// another one http.ServeMux would redirect, or take it for the same.
func spelt(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return strings.HasPrefix(p, "/") && p == path.Clean(p) && !strings.Contains(p, "%")
}

func noRoute(w http.ResponseWriter, _ *http.Request) {
	problem(w, http.StatusNotFound, "not_found", "there is no such method and path; docs/http.md has those that there are")
}

// live answers as long as the process serves.
func (g *Gateway) live(w http.ResponseWriter, _ *http.Request) {
	w.Write([]byte("ok\n"))
}

// ready answers 200 while deliveries are accepted: not before start-up is
// over, not once the gateway drains, and not when the store has failed.
func (g *Gateway) ready(w http.ResponseWriter, _ *http.Request) {
	if !g.accepting.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte("not accepting\n"))
		return
	}
	w.Write([]byte("ok\n"))
}

// guard lets a request through that carries an admin token.
func (g *Gateway) guard(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		sum := sha256.Sum256([]byte(token))
		match := 0
		for _, hash := range g.current.Load().adminTokens {
			match |= subtle.ConstantTimeCompare(sum[:], hash[:])
		}
		if !found || match != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			problem(w, http.StatusUnauthorized, "unauthorized", `send "Authorization: Bearer TOKEN"; "ichido token" makes one`)
			return
		}
		next(w, r)
	}
}

// reading hands a request on with its parameters, or answers 400 where they are
// not all among the known ones.
func reading(next func(http.ResponseWriter, *http.Request, query), known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := readQuery(r, known)
		if err != nil {
			badRequest(w, err)
			return
		}
		next(w, r, q)
	}
}

// parseTokens decodes checked "sha256:" hashes.
func parseTokens(list []string) [][sha256.Size]byte {
	hashes := make([][sha256.Size]byte, len(list))
	for i, text := range list {
		raw, _ := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
		copy(hashes[i][:], raw)
	}
	return hashes
}

func (g *Gateway) getStats(w http.ResponseWriter, r *http.Request, _ query) {
	stats, err := g.stock.take(r.Context())
	if err != nil {
		g.adminError(w, err)
		return
	}
	answer, at := view.OfStats(stats), g.stock.countedAt().UTC()
	answer.CountedAt = &at
	reply(w, answer)
}

func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request, q query) {
	f, err := q.filter()
	if err != nil {
		badRequest(w, err)
		return
	}
	page, err := view.Page(r.Context(), g.archive, f)
	if err != nil {
		g.adminError(w, err)
		return
	}
	reply(w, page)
}

func (g *Gateway) getEvent(w http.ResponseWriter, r *http.Request, _ query) {
	rec, err := g.archive.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		g.adminError(w, err)
		return
	}
	reply(w, view.OfRecord(&rec))
}

// postReplay replays what the query selects; dry_run=true only counts.
func (g *Gateway) postReplay(w http.ResponseWriter, r *http.Request, q query) {
	f, err := q.filter()
	dryRun, err := q.flag("dry_run", err)
	if err == nil && !q.selects() {
		err = errors.New("say which events: by " + strings.Join(filters(), ", "))
	}
	if err != nil {
		badRequest(w, err)
		return
	}
	done, err := view.Replay(r.Context(), g.archive, f, dryRun)
	if !dryRun && done.Events > 0 {
		g.log.Info("replayed events", "events", done.Events, "matched", done.Matched)
	}
	if err != nil {
		g.adminError(w, err)
		return
	}
	reply(w, done)
}

// adminError answers an error of the archive.
func (g *Gateway) adminError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ichido.ErrNotFound):
		problem(w, http.StatusNotFound, ichido.CodeNotFound, err.Error())
	case errors.Is(err, ichido.ErrBodyPurged):
		problem(w, http.StatusConflict, "body_purged", err.Error())
	case errors.Is(err, ichido.ErrNotReplayable):
		problem(w, http.StatusConflict, "not_replayable", err.Error())
	default:
		g.log.Error("answer an admin request", "error", err)
		problem(w, http.StatusServiceUnavailable, ichido.CodeUnavailable, "the store could not answer")
	}
}

func badRequest(w http.ResponseWriter, err error) {
	problem(w, http.StatusBadRequest, "bad_request", err.Error())
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	write(w, map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	write(w, v)
}

// write writes v as JSON in which everything prints: it may hold what a sender
// chose, and end in somebody's terminal.
func write(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // nothing that is given here fails
	}
	io.WriteString(w, view.JSON(string(text))+"\n")
}
