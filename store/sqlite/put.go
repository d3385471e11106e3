package sqlite

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/store/internal/rule"
)

// maxBlob is what SQLite takes as one value by default, less some room for
// the rest of the row.
const maxBlob = 1_000_000_000 - 1<<20

// Put implements [ichido.Queue].
func (s *Store) Put(ctx context.Context, records []ichido.Record) ([]ichido.Verdict, error) {
	if len(records) == 0 {
		return nil, nil
	}
	if err := rule.CheckPut(records); err != nil {
		return nil, err
	}
	verdicts := make([]ichido.Verdict, len(records))
	seqs := make([]int64, len(records)) // the records are the caller's again when its context ends
	o := &op{name: "put events", phase: putPhase, rows: len(records)}
	for i := range records {
		r := &records[i]
		if len(r.Body)+len(r.Header) > maxBlob {
			return nil, fmt.Errorf("put events: the body of %s has %d bytes and its headers %d, more than SQLite stores", r.ID(), len(r.Body), len(r.Header))
		}
		o.bytes += int64(len(r.Body) + len(r.Header))
		if r.State == ichido.Claimed {
			if err := s.own(ctx); err != nil {
				return nil, err
			}
		}
	}
	o.run = func(t *txn) error {
		for i := range records {
			v, err := t.put(&records[i], 0)
			if err != nil {
				return err
			}
			verdicts[i], seqs[i] = v, t.seq-1 // the last one given out
		}
		return nil
	}
	if err := s.do(ctx, o, false); err != nil {
		return nil, err
	}
	for i, v := range verdicts {
		if v == ichido.Accepted {
			records[i].Seq = seqs[i]
		}
	}
	return verdicts, nil
}

// put decides about one record and stores it if it is new. The unique index
// on hash decides, in whatever state the event is that is there, and for the
// same key twice in one transaction as well: the second one finds the first.
func (t *txn) put(r *ichido.Record, attempts int) (ichido.Verdict, error) {
	if t.room < 0 {
		t.room = max(t.s.room(), 0)
	}
	if t.room == 0 {
		return t.seen(r, ichido.Full)
	}
	isNew, err := t.insert(r)
	if err != nil {
		return 0, fmt.Errorf("insert event: %w", err)
	}
	if !isNew {
		return t.seen(r, 0)
	}
	if !r.Purged {
		if _, err := t.w.insertBody.Exec(t.seq, notNil(r.Header), notNil(r.Body)); err != nil {
			return 0, fmt.Errorf("insert body: %w", err)
		}
	}
	if r.State == "" || r.State == ichido.Pending {
		t.wake = true
		if t.s.fresh.room(len(r.Header) + len(r.Body)) {
			t.fresh = append(t.fresh, copyOf(r, t.seq))
		}
	} else if r.State == ichido.Claimed {
		// Its lease is looked at when it may have ended.
	} else if _, err := t.w.keep.Exec(stateCode(r.State), r.Outcome, rule.Cause(r.Cause), attempts, bit(r.Purged), t.seq); err != nil {
		return 0, fmt.Errorf("settle new event: %w", err)
	}
	t.seq++
	t.room--
	t.added++
	return ichido.Accepted, nil
}

// insert writes the row of a new event, claimed where its record says so, and
// reports whether its key is new. The first one of a transaction has SQLite
// find the next seq, and sets t.seq.
func (t *txn) insert(r *ichido.Record) (isNew bool, err error) {
	stmt := t.w.insert
	var seq any
	if t.seq > 0 {
		seq = t.seq
	}
	args := []any{
		seq, r.Hash[:], r.Source, t.now, len(r.Body), flagsOf(r), r.Fingerprint[:], r.Type, r.Scheme,
		r.ReceivedAt.UnixMilli(), signedAt(r.Time), keyOf(r),
	}
	if r.State == ichido.Claimed {
		args[3] = t.now + r.Lease.Milliseconds()
		args, stmt = append(args, int64(r.Token)), t.w.insertClaimed
	}
	res, err := stmt.Exec(args...)
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if t.seq == 0 {
		t.seq, err = res.LastInsertId()
	}
	return true, err
}

// seen compares a record with the one of the same key that is there.
func (t *txn) seen(r *ichido.Record, absent ichido.Verdict) (ichido.Verdict, error) {
	rows, err := t.w.find.Query(r.Hash[:])
	if err != nil {
		return 0, fmt.Errorf("find event: %w", err)
	}
	var seq int64
	var fingerprint []byte
	found := rows.Next()
	if found {
		err = rows.Scan(&seq, &fingerprint)
	}
	if cerr := rows.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = rows.Err()
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("find event: %w", err)
	case !found && absent == 0:
		return 0, fmt.Errorf("find event: %s was neither inserted nor there", r.ID())
	case !found:
		return absent, nil
	case !bytes.Equal(fingerprint, r.Fingerprint[:]):
		return ichido.Conflict, nil
	}
	if _, err := t.w.copied.Exec(seq); err != nil {
		return 0, fmt.Errorf("count copy: %w", err)
	}
	return ichido.Duplicate, nil
}

func signedAt(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// keyOf returns the key to store: nothing where the fingerprint says it, as
// for senders whose events are known by their bytes.
func keyOf(r *ichido.Record) any {
	var digits [64]byte
	hex.Encode(digits[:], r.Fingerprint[:])
	if r.Key == string(digits[:]) {
		return nil
	}
	return r.Key
}

// notNil makes an empty BLOB of what database/sql would store as NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
