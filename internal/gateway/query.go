package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ichido.dev/ichido"
)

// query holds the parameters of an admin request, by name. It is strict: a
// filter that is misspelt must not select everything, nor a misspelt dry_run
// replay what was only to be counted.
type query map[string]string

// readQuery reads the parameters of a request, which are all in its URL, or
// says what is wrong with one.
func readQuery(r *http.Request, known []string) (query, error) {
	if r.ContentLength != 0 {
		return nil, errors.New("send no body: the parameters are in the query")
	}
	there := "there are " + strings.Join(known, ", ")
	if len(known) == 0 {
		there = "there are none here"
	}
	q := query{}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair == "" {
			continue
		}
		written, text, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(written)
		value, err2 := url.QueryUnescape(text)
		var fault string
		switch {
		case err != nil || err2 != nil || strings.Contains(pair, ";"):
			name, fault = written, "cannot be read: parameters are separated by &; write %3B for ; and %25 for %"
		case !slices.Contains(known, name):
			fault = "is not known"
		case value == "":
			fault = "has no value"
		case q[name] != "":
			fault = "is there twice"
		default:
			q[name] = value
			continue
		}
		return nil, fmt.Errorf("the parameter %.64q %s; %s", name, fault, there)
	}
	return q, nil
}

// filters returns the parameters that select events.
func filters() []string {
	return []string{"id", "source", "state", "outcome", "type", "key", "since", "until"}
}

// selects reports whether a query says which events.
func (q query) selects() bool {
	return slices.ContainsFunc(filters(), func(name string) bool { return q[name] != "" })
}

// filter returns the filter of a query.
func (q query) filter() (ichido.Filter, error) {
	f := ichido.Filter{
		ID: q["id"], Source: q["source"], State: ichido.State(q["state"]), Outcome: q["outcome"], Type: q["type"], Key: q["key"],
	}
	_, isID := ichido.ParseID(f.ID)
	if f.ID != "" && !isID {
		return f, errors.New(`id must be "ev_" and 26 letters and digits`)
	}
	states := []string{
		string(ichido.Pending), string(ichido.Claimed), string(ichido.Done), string(ichido.Dead), string(ichido.Quarantined),
	}
	outcomes := []string{ichido.Applied, ichido.Forwarded, ichido.Refuted, ichido.Ignored, ichido.Split}
	var err error
	f.Since, err = q.time("since", err)
	f.Until, err = q.time("until", err)
	f.Before, err = q.number("before", math.MaxInt64, err)
	limit, err := q.number("limit", 1000, err)
	f.Limit = int(limit)
	return f, q.oneOf("outcome", outcomes, q.oneOf("state", states, err))
}

// The functions below read one parameter each, and pass an earlier error on.

// time reads a time, zero when it is not there.
func (q query) time(name string, err error) (time.Time, error) {
	if err != nil || q[name] == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, q[name])
	if err != nil {
		return t, errors.New(name + " must be a time like 2026-01-31T00:00:00Z, with %2B for +")
	}
	return t, nil
}

// number reads a number from 1 to most, 0 when it is not there.
func (q query) number(name string, most int64, err error) (int64, error) {
	if err != nil || q[name] == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(q[name], 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s must be a number from 1 to %d", name, most)
	}
	return n, nil
}

// flag reads a boolean, false when it is not there.
func (q query) flag(name string, err error) (bool, error) {
	on := q[name] == "true" || q[name] == "1"
	return on, q.oneOf(name, []string{"true", "false", "1", "0"}, err)
}

// oneOf checks that a parameter, where it is there, is one of the words.
func (q query) oneOf(name string, words []string, err error) error {
	if err != nil || q[name] == "" || slices.Contains(words, q[name]) {
		return err
	}
	return fmt.Errorf("%s must be one of %s", name, strings.Join(words, ", "))
}
