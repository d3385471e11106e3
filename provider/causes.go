package provider

import (
	"strconv"
	"time"

	"ichido.dev/ichido"
)

// Refusals of requests that are not genuine. They are made once, so that a
// flood of bad signatures allocates nothing. The sender is told the same for
// all of them; the cause is for logs and metrics.
var (
	errMissing       = refusal("signature_missing")
	errMalformed     = refusal("signature_malformed")
	errMismatch      = refusal("signature_mismatch")
	errAmbiguous     = refusal("signature_ambiguous") // under two header names at once
	errRepeated      = refusal("header_repeated")
	errHeaderMissing = refusal("header_missing") // one that the signature covers
	errIDMalformed   = refusal("id_malformed")   // a signed id header
	errTypeMalformed = refusal("type_malformed") // an event type header
	errTimeMissing   = refusal("timestamp_missing")
	errTimeMalformed = refusal("timestamp_malformed")
	errTokenMismatch = refusal("token_mismatch")
	errNoLiveSecret  = refusal("secret_not_live") // all of them before or after their time
	errAudience      = refusal("audience")
	errClaim         = refusal("claim_mismatch")
	errExpired       = refusal("expired")
	errNotYetValid   = refusal("not_yet_valid")
	errKeyUnknown    = refusal("key_unknown")
	errAlgorithm     = refusal("algorithm")
	errBodyHash      = refusal("body_hash_mismatch")
	errURLHash       = refusal("url_hash_mismatch")
)

func refusal(cause string) *ichido.Error {
	return &ichido.Error{Code: ichido.CodeSignature, Op: "verify", Cause: cause}
}

// skew is how far a signed time is from the receiver's clock. It is wrapped by
// the refusal of a stale delivery, for alarms about clocks:
//
//	var s interface{ Skew() time.Duration }
//	errors.As(err, &s)
//
// Only the holder of a secret can cause it: time is judged after the signature.
type skew time.Duration

// Skew is negative for a time in the past, positive for one in the future.
func (s skew) Skew() time.Duration { return time.Duration(s) }

func (s skew) Error() string {
	seconds := int64(time.Duration(s) / time.Second)
	if seconds < 0 {
		return "past by " + strconv.FormatInt(-seconds, 10) + " s"
	}
	return "future by " + strconv.FormatInt(seconds, 10) + " s"
}

// stale refuses a delivery that verified but whose signed time is off by
// seconds, saturated to a year so that no arithmetic can wrap.
func stale(seconds int64) error {
	const year = 366 * 24 * 3600
	cause := "stale_past"
	if seconds > 0 {
		cause = "stale_future"
	}
	off := skew(min(max(seconds, -year), year)) * skew(time.Second)
	return &ichido.Error{Code: ichido.CodeSignature, Op: "verify", Cause: cause, Err: off}
}
