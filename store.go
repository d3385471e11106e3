package ichido

import (
	"context"
	"time"
)

// State is where an event is in its life.
//
//	pending ──claim──▶ claimed ──complete──▶ done
//	   ▲                  │ ├──────────────▶ dead
//	   └──retry, lapse────┘ └──────────────▶ quarantined
//	   ▲                                 │
//	   └──────────── replay ◀── done, dead
type State string

const (
	Pending     State = "pending"     // due at Record.Due
	Claimed     State = "claimed"     // leased until Record.Due
	Done        State = "done"        // with an outcome
	Dead        State = "dead"        // a dead letter, with a cause
	Quarantined State = "quarantined" // verified bytes that cannot become an event
)

// Outcomes of a done event.
const (
	Applied   = "applied"   // the handler returned nil
	Forwarded = "forwarded" // the destination answered 2xx
	Refuted   = "refuted"   // the provider's API says it is not true
	Ignored   = "ignored"   // there was nothing to do
	Split     = "split"     // the delivery of several events, stored beside them
)

// Record is an event as stores keep it: plain data, never handed to a
// handler. Only this package turns a Record into an [Event].
type Record struct {
	// Written by the Inbox, never changed afterwards.
	Hash        [16]byte  // identity: the first half of SHA-256(source, 0, key)
	Source      string    // name of the source
	Key         string    // readable identity inside the source
	Type        string    // event type
	TypeSigned  bool      // whether the signature covers Type
	Fingerprint [32]byte  // decides between a duplicate and a conflict
	Strength    string    // Verified, Authenticated or Weak
	Scheme      string    // variant of the scheme that verified
	Secret      int       // index of the secret that verified
	Time        time.Time // signed time, zero when there is none
	ReceivedAt  time.Time // by the receiver's clock, milliseconds
	Header      []byte    // kept headers in wire form, "Name: value\r\n"; a BLOB: may hold signatures
	Body        []byte    // exact bytes; nil where they were purged, or were not asked for

	// State, Outcome and Cause are Pending, "" and "" for a new event. The
	// Inbox writes Done or Quarantined for what is only kept to be seen, and
	// Claimed, with Token and Lease, for what a worker beside it can start at
	// once: such an event is stored as claimed, its first attempt counted.
	State   State
	Outcome string
	Cause   string
	Token   uint64        // fence of the current claim, 0 when there is none
	Lease   time.Duration // Put of a Claimed record: how long the claim is exclusive

	// Written by the store.
	Seq       int64     // order of acceptance inside the store, from 1
	Size      int64     // length of Body when it was stored, bytes
	Due       time.Time // pending: next attempt; claimed: end of the lease
	Started   bool      // a handler ran under the claim that lapsed last
	Attempts  int       // claims counted so far, less those given back, and those that lapsed while no handler ran
	Deaths    int       // claims that lapsed while a handler ran, in a row; see Settle
	Copies    int       // duplicates seen
	Replays   int       // times an operator asked for it again
	SettledAt time.Time // when it became done, dead or quarantined
	Confirmed []byte    // authoritative state that was fetched for it
	Purged    bool      // the body is gone, the key is kept; set by the Inbox where a done event's body is not to be kept
}

// Verdict is the store's decision about one record or one claim.
type Verdict uint8

const (
	Accepted   Verdict = iota + 1 // new: it is stored, or the claim is acquired
	Duplicate                     // same key, same fingerprint, in whatever state; or the claim is completed
	Conflict                      // same key, other fingerprint: the first one is untouched
	InProgress                    // the claim is held by a running handler
	Full                          // refused: at capacity, nothing was evicted
)

var verdicts = [...]string{"unknown", "accepted", "duplicate", "conflict", "in_progress", "full"}

// String returns the verdict's name as used in answers, logs and metrics.
func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return verdicts[0]
}

// Queue stores events and hands them out to be worked. All methods are safe
// for concurrent use. Leases and due times are judged by the store's clock.
//
// Errors: an error that wraps [ErrUnavailable] says that the store could not
// do it now; nothing of the call was done unless its comment says otherwise.
type Queue interface {
	// Put stores records, all of them in one commit, and returns a verdict
	// for each. When it returns nil, every record with verdict Accepted is
	// durable: it survives the death of the process and of the machine, and
	// a Duplicate's first copy is too. The same key twice in one call is
	// decided in order. Put sets Seq of the records that it accepted.
	//
	// Put MUST decide by the unique key inside the commit, in every state of
	// the event that is there, and MUST NOT evict anything to make room. It
	// MUST NOT keep a record's slices after it returned, except when it
	// returned the error of its context: then it may still be reading them,
	// and whether the records are stored is unknown.
	Put(ctx context.Context, records []Record) ([]Verdict, error)

	// Claim gives the caller the exclusive right to attempt events that are
	// due, oldest first, each with a fresh token. Attempts are counted here; a
	// claim that lapses while no handler runs gives its attempt back. A claim
	// whose lease has ended is due again, at the latest; a store that can prove
	// that the claimer is gone SHOULD not wait for that. Claim MAY return fewer
	// than wanted, and of each source at most one event that has Deaths, only if
	// want.Suspects says so: one with the fewest, the oldest of those.
	Claim(ctx context.Context, want Want) ([]Record, error)

	// Mark notes that a handler of a claimed record starts to run, or has
	// ended. A claim that lapses in between is counted in Deaths; one that
	// lapses without any such note gives its attempt back. The note SHOULD survive the end of the process and
	// cost next to nothing; it need not survive the end of the machine.
	Mark(r *Record, running bool)

	// Extend renews leases to end d from now. It returns one error per
	// record: nil, or ErrLeaseLost for one whose token is no longer current.
	Extend(ctx context.Context, records []*Record, d time.Duration) ([]error, error)

	// Settle ends claims. It returns one error per settlement: nil when it is
	// durable, or ErrLeaseLost when the token is no longer current; then it
	// changed nothing. A lease that has ended, but that nobody has claimed
	// since, may still be settled: the attempt is over and was the only one.
	// To settle to Pending without GiveBack sets Deaths to 0: an attempt ended,
	// and its process did not.
	Settle(ctx context.Context, settlements []Settlement) ([]error, error)

	// Ready returns a channel that receives when an event may have become
	// due. It is a hint: signals coalesce, and may be missing (polling is
	// what finds an event in the end).
	Ready() <-chan struct{}
}

// Want says what a worker can start now.
type Want struct {
	Slots    map[string]int  // how many events of each source
	Bytes    int64           // sum of body sizes; one event is given even if it alone is larger; 0 means no limit
	Lease    time.Duration   // how long the claim is exclusive
	Suspects map[string]bool // sources of which one event that has Deaths may be among them
}

// Settlement is how a claim ends.
type Settlement struct {
	Record    *Record       // as claimed
	State     State         // Done, Dead, Quarantined, or Pending to try again
	Outcome   string        // of Done
	Cause     string        // why, where there is something to say; at most 256 bytes; kept in every state
	After     time.Duration // of Pending: due this long from now
	GiveBack  bool          // of Pending: the attempt is not counted
	Confirmed []byte        // authoritative state to keep with the event
}

// Archive finds, counts, replays and purges what a [Queue] has stored. All
// methods are safe for concurrent use.
type Archive interface {
	// Get returns the record with the given event id, with its body.
	// ErrNotFound: there is none.
	Get(ctx context.Context, id string) (Record, error)

	// List returns records without bodies, newest first.
	List(ctx context.Context, f Filter) ([]Record, error)

	// Stats counts what is stored.
	Stats(ctx context.Context) (Stats, error)

	// Replay makes done and dead events pending again, due now, with their
	// attempts forgotten, and returns how many there are; with dryRun it only
	// counts. Events without a body, and deliveries that were split into
	// events of their own, are skipped; if f names a single event
	// and it cannot be replayed, the error says why (ErrNotFound,
	// ErrBodyPurged, ErrNotReplayable).
	Replay(ctx context.Context, f Filter, dryRun bool) (int, error)

	// Purge removes the bodies of the source's done events settled before
	// bodies, and the done events themselves, key and all, where they were
	// settled before keys, in small batches that other calls run between. A
	// zero time purges nothing of its kind. It returns how many bodies and
	// keys were removed. Pending, dead and quarantined records stay.
	Purge(ctx context.Context, source string, bodies, keys time.Time) (nBodies, nKeys int, err error)
}

// Filter selects records. The zero value selects all.
type Filter struct {
	ID      string
	Source  string
	State   State
	Outcome string
	Type    string
	Key     string
	Since   time.Time // received at or after
	Until   time.Time // received before
	Before  int64     // only records with a smaller Seq: the last one of the previous page
	Limit   int       // List: at most this many; 0 means 50. Replay: 0 means all
}

// Stats counts what is stored.
type Stats struct {
	Counts  map[string]map[State]int // by source and state
	Oldest  time.Time                // when the oldest pending event that is due was received; zero when there is none
	Purged  int                      // records removed by Purge since the store was made
	Pending int                      // inline claims that are held, or whose owner is gone

	// PendingKeys are the keys of those claims, the oldest first, at most 100.
	// One that stays here ran its handler, and could not record that it did.
	PendingKeys []string
}

// Claims is the store of the inline mode: the exclusive right to run a
// handler during the request. It is a value of its own beside a [Queue].
// All methods are safe for concurrent use; an error means that the store
// could not tell, and is answered 503.
type Claims interface {
	// Claim is one atomic step. Accepted: the caller holds the claim and
	// must Complete or Release it with the token. InProgress: another caller
	// holds it. Duplicate: it was completed. Full: at capacity; nothing is
	// ever evicted.
	//
	// A claim never ends by time alone. One whose owner died may be released
	// only on proof that the owner is gone.
	Claim(ctx context.Context, key string) (v Verdict, token string, err error)

	// Complete completes a held claim with this token. ErrLeaseLost: the
	// claim is not held with this token, and nothing changed.
	Complete(ctx context.Context, key, token string) error

	// Release forgets a held claim with this token, so that a retry is
	// accepted. ErrLeaseLost: as above; a completed claim is never released.
	Release(ctx context.Context, key, token string) error
}

// Applier applies events inside a transaction of the store that keeps them:
// the effect and the completion commit together, once, or not at all. A store
// makes one from a handler that takes its kind of transaction.
//
// Many may wait for one writer, so two bounds count apart. The context bounds
// only the wait for the transaction: when it ends before, the error wraps
// ErrUnavailable, and the handler did not run. Once the transaction has begun
// that context ends nothing any more: the handler's own one has its values and
// ends after limit, which must be positive, counted from the beginning of the
// transaction. A handler that has not returned by then has failed with
// context.DeadlineExceeded.
//
// An error that wraps ErrUnavailable is the store's; any other is what the
// handler returned. Whatever the error, nothing of the event's row and of the
// effect is kept; except that a failed commit whose fate cannot be known is
// resolved by the next attempt, which finds the event done.
type Applier interface {
	// Accept stores r, applies e and completes it, in one transaction of its
	// own. Any verdict but Accepted means that the handler did not run.
	Accept(ctx context.Context, r *Record, e *Event, limit time.Duration) (Verdict, error)

	// Complete completes a claimed record and applies e, in one transaction.
	// ErrLeaseLost: the token is no longer current, the handler did not run.
	// It marks the record, as [Queue.Mark] does, while the handler runs and
	// not while it waits for the transaction: many wait, and are innocent.
	Complete(ctx context.Context, r *Record, e *Event, limit time.Duration) error
}
