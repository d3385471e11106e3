package ichido

import (
	"net/http"
	"strconv"
	"time"
)

// answer is what a refused request gets: a constant for its code, so that it
// can reflect nothing and tell nothing apart.
type answer struct {
	status int
	title  string
	retry  int  // Retry-After in seconds, 0 for none
	close  bool // the connection is closed: the body was not read to its end
	body   []byte
}

// answers is the one table from codes to answers. A code that is not in it is
// answered as CodeInternal.
var answers = func() map[string]*answer {
	table := map[string]*answer{
		CodeSignature:   {status: http.StatusUnauthorized, title: "The signature does not verify."},
		CodeNotFound:    {status: http.StatusNotFound, title: "There is no such endpoint."},
		CodeConflict:    {status: http.StatusConflict, title: "An event with this identity and other content is stored."},
		CodeUnreadable:  {status: http.StatusBadRequest, title: "The body cannot be read."},
		CodeNotAllowed:  {status: http.StatusForbidden, title: "This event is not allowed here."},
		CodeRejected:    {status: http.StatusConflict, title: "The event was rejected."},
		CodeInProgress:  {status: http.StatusServiceUnavailable, title: "The first copy of this event is being handled.", retry: 2},
		CodeFailed:      {status: http.StatusServiceUnavailable, title: "The event could not be handled.", retry: 5},
		CodeTooLarge:    {status: http.StatusRequestEntityTooLarge, title: "The body is too large.", close: true},
		CodeIncomplete:  {status: http.StatusBadRequest, title: "The body is shorter than declared.", close: true},
		CodeTimeout:     {status: http.StatusRequestTimeout, title: "The body did not arrive in time.", close: true},
		CodeEncoding:    {status: http.StatusUnsupportedMediaType, title: "This content encoding is not supported here.", close: true},
		CodeMethod:      {status: http.StatusMethodNotAllowed, title: "This method is not allowed."},
		CodeRateLimited: {status: http.StatusTooManyRequests, title: "Too many events.", retry: 10},
		CodeOverloaded:  {status: http.StatusServiceUnavailable, title: "There is no room for this request.", retry: 5, close: true},
		CodeUnavailable: {status: http.StatusServiceUnavailable, title: "The event could not be stored.", retry: 5},
		CodeFull:        {status: http.StatusServiceUnavailable, title: "The inbox is full.", retry: 30},
		CodeDraining:    {status: http.StatusServiceUnavailable, title: "The receiver is shutting down.", retry: 5, close: true},
		CodeInternal:    {status: http.StatusInternalServerError, title: "The receiver has a fault."},
	}
	for code, a := range table {
		a.body = []byte(`{"type":"about:blank","title":"` + a.title + `","status":` + strconv.Itoa(a.status) + `,"code":"` + code + `"}` + "\n")
	}
	return table
}()

// Header values that are written often, shared: net/http does not change them.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	nosniff     = []string{"nosniff"}
	closing     = []string{"close"}
)

// writeProblem answers with the constant of code.
func writeProblem(w http.ResponseWriter, code string) {
	a := answers[code]
	if a == nil {
		a = answers[CodeInternal]
	}
	h := w.Header()
	h["Content-Type"] = typeProblem
	h["X-Content-Type-Options"] = nosniff
	if a.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(a.retry))
	}
	if a.close {
		closeAfter(w)
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// closeAfter has the connection closed after the answer, because a body was
// not read to its end. net/http reads some of what is left, and by itself waits
// for that without an end: a sender that withholds it would keep the connection.
func closeAfter(w http.ResponseWriter) {
	w.Header()["Connection"] = closing
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(leftoverGrace))
}

// acknowledge answers 2xx: as the provider's sender expects it, or in the
// standard form. verdict is "accepted", "duplicate", "ignored" or
// "quarantined".
func (in *Inbox) acknowledge(w http.ResponseWriter, verdict, id string) {
	if in.acknowledger != nil && in.acknowledger.Acknowledge(w, verdict, id) {
		return
	}
	if in.src.Inline != nil && verdict == Ignored {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	body := make([]byte, 0, 96)
	switch verdict {
	case Ignored:
		body = append(body, `{"accepted":true,"duplicate":false,"ignored":true}`...)
	case quarantined:
		body = append(body, `{"accepted":true,"duplicate":false,"quarantined":true}`...)
	default:
		body = append(body, `{"accepted":true,"duplicate":`...)
		body = strconv.AppendBool(body, verdict == Duplicate.String())
		body = append(body, `,"id":"`...)
		body = append(body, id...)
		body = append(body, `"}`...)
	}
	w.Header()["Content-Type"] = typeJSON
	w.Write(append(body, '\n'))
}

// refuse answers with an error's code, and counts it.
func (in *Inbox) refuse(w http.ResponseWriter, err *Error) {
	in.src.Observe(err.Code, err.Cause)
	in.problem(w, err.Code)
}

// problem answers with an error's code.
func (in *Inbox) problem(w http.ResponseWriter, code string) {
	if in.acknowledger != nil && in.acknowledger.Acknowledge(w, code, "") {
		return
	}
	writeProblem(w, code)
}
