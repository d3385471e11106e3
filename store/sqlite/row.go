package sqlite

import (
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"ichido.dev/ichido"
)

var states = [...]ichido.State{ichido.Pending, ichido.Claimed, ichido.Done, ichido.Dead, ichido.Quarantined}

func stateCode(s ichido.State) int {
	for code, state := range states {
		if s == state {
			return code
		}
	}
	return -1
}

var strengths = [...]string{"", ichido.Verified, ichido.Authenticated, ichido.Weak}

const flagTypeSigned = 2

// flagsOf packs what is written once and never searched.
func flagsOf(r *ichido.Record) int64 {
	flags := int64(r.Secret) << 8
	if r.TypeSigned {
		flags |= flagTypeSigned
	}
	for code, strength := range strengths {
		if r.Strength == strength {
			flags |= int64(code) << 2
		}
	}
	return flags
}

// An event's columns: what changes while it is worked, what never changes,
// and the rest.
const (
	workColumns  = `seq, source, due, attempts, deaths, size, copies, replays, cause`
	fixedColumns = `seq, source, hash, flags, fingerprint, type, scheme, received_at, signed_at, key`
	restColumns  = `state, token, started = 1, settled_at, outcome, purged`
	eventColumns = workColumns + `, ` + fixedColumns + `, ` + restColumns
)

// row scans an event. Its dest methods name the columns in the order above.
type row struct {
	ichido.Record
	hash, fingerprint      []byte
	key                    *string
	flags, due, receivedAt int64
	signedAt               *int64
	state, settledAt       int64
	token                  int64
}

func (x *row) workDest() []any {
	return []any{&x.Seq, &x.Source, &x.due, &x.Attempts, &x.Deaths, &x.Size, &x.Copies, &x.Replays, &x.Cause}
}

func (x *row) fixedDest() []any {
	return []any{&x.Seq, &x.Source, &x.hash, &x.flags, &x.fingerprint, &x.Type, &x.Scheme, &x.receivedAt, &x.signedAt, &x.key}
}

func (x *row) eventDest() []any {
	return append(append(x.workDest(), x.fixedDest()...), &x.state, &x.token, &x.Started, &x.settledAt, &x.Outcome, &x.Purged)
}

// work returns what was scanned of the work columns.
func (x *row) work() ichido.Record {
	r := x.Record
	r.Due = timeOf(x.due)
	return r
}

// record returns what was scanned.
func (x *row) record() ichido.Record {
	r := x.Record
	copy(r.Hash[:], x.hash)
	copy(r.Fingerprint[:], x.fingerprint)
	if x.key != nil {
		r.Key = *x.key
	} else {
		r.Key = hex.EncodeToString(x.fingerprint)
	}
	r.TypeSigned = x.flags&flagTypeSigned != 0
	r.Strength = strengths[x.flags>>2&3]
	r.Secret = int(x.flags >> 8)
	r.State = states[x.state]
	r.Token = uint64(x.token)
	r.ReceivedAt = time.UnixMilli(x.receivedAt).UTC()
	if x.signedAt != nil {
		r.Time = time.UnixMilli(*x.signedAt).UTC()
	}
	r.Due = timeOf(x.due)
	r.SettledAt = timeOf(x.settledAt)
	return r
}

// scanAll reads rows of one column.
func scanAll[T any](rows *sql.Rows, err error) (all []T, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// timeOf returns the zero time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
