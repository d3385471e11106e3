package gateway

import (
	"net/http"
	"strings"

	"ichido.dev/ichido"
)

// router finds the source of a path. It matches the escaped path as received,
// with or without one slash at the end; it decodes nothing and never
// redirects, for senders count a redirect as a failure.
type router struct {
	exact   map[string]*endpoint // path without a slash at the end
	tokened map[string]*endpoint // the same, for paths with a secret last segment
	none    http.Handler
}

func newRouter(endpoints []*endpoint, a *ichido.Admission) *router {
	r := &router{exact: map[string]*endpoint{}, tokened: map[string]*endpoint{}, none: ichido.NotFound(a)}
	for _, e := range endpoints {
		if e.tokened {
			r.tokened[e.path] = e
		} else {
			r.exact[e.path] = e
		}
	}
	return r
}

// ServeHTTP hands the request to its source, or answers 404 after the same
// work.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.EscapedPath(), "/")
	if e := r.exact[path]; e != nil {
		e.inbox.ServeHTTP(w, req)
		return
	}
	if last := strings.LastIndexByte(path, '/'); last >= 0 {
		if e := r.tokened[path[:last]]; e != nil {
			e.inbox.ServeHTTP(w, req) // compares the token
			return
		}
	}
	r.none.ServeHTTP(w, req)
}
