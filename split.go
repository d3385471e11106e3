package ichido

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"net/http"
)

// split is a delivery of several events on its way to the store.
type split struct {
	records  []Record // the delivery itself, then what is stored beside it
	code     string   // why the delivery is not answered 2xx, "" when it is
	accepted bool     // at least one event is new
	repeated bool     // at least one event was there
}

// storeSplit stores a delivery of several events: the delivery itself, done,
// and its events, in one commit. Each event is judged as one that came alone.
// Where one is answered with an error, so is the delivery, once the others are
// stored: the sender tries again, and finds those to be duplicates. Events
// that policy refuses are left out, and decide only where nothing else is
// there.
func (in *Inbox) storeSplit(w http.ResponseWriter, r *http.Request, v *visit, proofs []Proof) {
	s := in.divide(v, proofs)
	if len(s.records) > 1 {
		verdicts, err := in.put(r, v, s.records)
		if err == nil {
			err = in.settleSplit(r, v, s, verdicts)
		}
		if err != nil {
			in.refuse(w, err)
			return
		}
	}
	switch {
	case s.code != "":
		in.problem(w, s.code)
	case len(s.records) == 1:
		in.acknowledge(w, Ignored, "")
	case s.accepted:
		in.acknowledge(w, Accepted.String(), s.records[0].ID())
	case s.repeated:
		in.acknowledge(w, Duplicate.String(), s.records[0].ID())
	default:
		in.acknowledge(w, quarantined, "")
	}
}

// divide judges the events of a delivery, and makes the records of those that
// are stored.
func (in *Inbox) divide(v *visit, proofs []Proof) *split {
	s := &split{records: make([]Record, 1, 1+len(proofs))}
	whole := &s.records[0]
	in.record(v, &v.proof, whole)
	whole.State, whole.Outcome = Done, Split
	whole.Fingerprint = sha256.Sum256(whole.Body)
	whole.identify(kindDelivery, string(whole.Fingerprint[:]))
	whole.Header = bytes.Clone(whole.Header)
	denied := false
	for i := range proofs {
		p := &proofs[i]
		switch {
		case p.Denied != "":
			in.src.Observe(CodeNotAllowed, p.Denied)
			denied = true
			continue
		case p.Unreadable == "" && (p.Ignored != "" || !in.handles(p.Type)):
			in.src.Observe(Ignored, ignoredCause(p))
			continue
		}
		var rec Record
		in.record(v, p, &rec)
		rec.Header = whole.Header
		if p.Unreadable != "" {
			code := unreadableCode(p)
			in.src.Observe(code, p.Unreadable)
			rec.quarantine(code, p.Unreadable)
			in.worsen(s, code)
		}
		s.records = append(s.records, rec)
	}
	if denied && len(s.records) == 1 {
		s.code = CodeNotAllowed
	}
	return s
}

// worsen notes that one event is answered with an error, unless the source
// acknowledges what it quarantines.
func (in *Inbox) worsen(s *split, code string) {
	if s.code == "" && !in.accepts(code) {
		s.code = code
	}
}

// settleSplit quarantines the events that conflict with what is stored.
func (in *Inbox) settleSplit(r *http.Request, v *visit, s *split, verdicts []Verdict) *Error {
	var conflicts []Record
	for i, verdict := range verdicts {
		if verdict == Full {
			return &Error{Code: CodeFull, Op: "store"}
		}
		if i == 0 || s.records[i].State == Quarantined {
			continue
		}
		in.src.Observe(verdict.String(), "split")
		switch verdict {
		case Accepted:
			s.accepted = true
		case Duplicate:
			s.repeated = true
		case Conflict:
			rec := s.records[i]
			rec.quarantine(CodeConflict, causeConflict)
			in.worsen(s, CodeConflict)
			conflicts = append(conflicts, rec)
		}
	}
	if len(conflicts) == 0 {
		return nil
	}
	in.log(slog.LevelWarn, "quarantine events of a delivery", "code", CodeConflict, "events", len(conflicts))
	verdicts, err := in.put(r, v, conflicts)
	for _, verdict := range verdicts {
		if verdict == Full {
			return &Error{Code: CodeFull, Op: "store"}
		}
	}
	return err
}
