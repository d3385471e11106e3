package provider

import (
	"ichido.dev/ichido"
)

// Inspect implements ichido.Inspector. It judges the whole body by the strict
// reading of JSON (no member twice at any level, valid UTF-8, one value), and
// returns its JSON view: the body without a byte order mark, the payload field
// of a form, or nil for a form without one. Where a table of required members
// is known, the body must have those of its type.
func (e *engine) Inspect(eventType string, body []byte) ([]byte, error) {
	w := e.work.Get().(*work)
	defer e.release(w)
	defer w.scanner.release()
	view := cutBOM(body)
	if e.form && isForm(body) {
		f, ok := parseForm(view)
		payload, one := f.unwrap()
		switch {
		case !ok:
			return nil, unreadable("malformed form")
		case !one:
			return nil, unreadable("two payload fields")
		case payload == nil && e.fields != nil:
			return nil, unreadable("form without payload")
		case payload == nil:
			return nil, nil
		}
		view = payload
	}
	if e.fields != nil {
		if known, err := e.fields.check(w, eventType, view); known {
			if err != nil {
				return nil, err
			}
			return view, nil
		}
	}
	if !w.scanner.validJSON(view) {
		return nil, unreadable("not strict JSON")
	}
	return view, nil
}

func unreadable(cause string) error {
	return &ichido.Error{Code: ichido.CodeUnreadable, Op: "inspect", Cause: cause}
}
