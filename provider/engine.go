package provider

import (
	"hash"
	"slices"
	"sync"
	"time"

	"ichido.dev/ichido"
)

// engine verifies what one sender sends to one source. It implements
// ichido.Provider and its optional interfaces, and is never changed once made.
type engine struct {
	schemes    []*scheme // that have keys, in the profile's order
	keep       []string
	redact     []string
	policy     policy
	challenges []*challenge
	probes     []*probe
	replies    map[string]*reply
	form       bool
	fields     *fieldTable // nil where no members are required
	work       sync.Pool
}

// work is the memory of one verification, reused.
type work struct {
	groups   [maxCandidates]string // of the signature headers
	ngroups  int
	sig      signature
	macs     [maxCandidates][maxSignature + 4]byte // decoded candidates
	sizes    [maxCandidates]int
	n        int
	text     []byte // scratch
	head     []byte // rendered message before the body
	tail     []byte
	message  []byte // the whole message, for public keys
	sum      []byte
	timeText string
	time     time.Time
	digest   hash.Hash

	scanner  jsonScanner
	members  []member
	required []member // of the type, when a body is inspected
	parsed   bool     // whether they were read
	envelope int      // and what the body is
	view     []byte   // JSON that the members are in
	opaque   bool     // the body is a form without a JSON view
	form     form

	token      []byte // claims of a JWT
	claims     []member
	signedHash [32]byte // of a JWT's signing input
}

const maxPooledMessage = 1 << 20

func (e *engine) newWork() any { return new(work) }

// release gives w back without the delivery it worked on.
func (e *engine) release(w *work) {
	if w.view != nil {
		w.scanner.release()
	}
	if cap(w.message) > maxPooledMessage {
		w.message = nil
	}
	clear(w.groups[:w.ngroups])
	w.ngroups = 0
	w.view, w.form, w.opaque, w.parsed, w.token = nil, nil, false, false, nil
	e.work.Put(w)
}

// Verify implements ichido.Provider.
func (e *engine) Verify(d *ichido.Delivery) (ichido.Proof, error) {
	w := e.work.Get().(*work)
	defer e.release(w)
	family, err := e.family(d)
	if err != nil {
		return ichido.Proof{}, err
	}
	s, index, err := e.try(w, d, family)
	if err != nil {
		return ichido.Proof{}, err
	}
	p := ichido.Proof{Scheme: s.name, Strength: s.strength, Secret: index, Keep: e.keep, Redact: e.redact}
	if err := e.identify(w, d, s, &p); err != nil {
		return ichido.Proof{}, err
	}
	return p, nil
}

// family returns the place of the signature that the delivery uses. It must
// use one: under two header names at once, a reader of one would not see what
// a reader of the other does.
func (e *engine) family(d *ichido.Delivery) (*scheme, error) {
	var found *scheme
	for _, s := range e.schemes {
		if !s.present(d) {
			continue
		}
		if found != nil && !sameFamily(found, s) {
			return nil, errAmbiguous
		}
		if found == nil {
			found = s
		}
	}
	if found == nil {
		return nil, errMissing
	}
	return found, nil
}

// present reports whether any of the scheme's signature places is used.
func (s *scheme) present(d *ichido.Delivery) bool {
	for _, at := range s.from {
		switch at.kind {
		case inHeader:
			if len(d.Header[at.name]) > 0 {
				return true
			}
		case inBasic:
			if len(d.Header["Authorization"]) > 0 {
				return true
			}
		default:
			return true
		}
	}
	return s.kind == kindNone
}

func sameFamily(a, b *scheme) bool {
	return slices.EqualFunc(a.from, b.from, func(x, y place) bool { return x.kind == y.kind && x.name == y.name })
}

// try verifies with the variants that read this signature place and whose
// shape the value has. Where one value lists signatures of several variants,
// all are candidates; a value that has the shape of one variant is never
// tried with another.
func (e *engine) try(w *work, d *ichido.Delivery, family *scheme) (*scheme, int, error) {
	var failure error
	for _, s := range e.schemes {
		if !sameFamily(family, s) || !s.fits(d) {
			continue
		}
		w.time = time.Time{}
		index, err := s.verify(w, d)
		if err == nil {
			return s, index, nil
		}
		if failure == nil || failure == error(errMismatch) {
			failure = err
		}
	}
	if failure == nil {
		failure = errMalformed
	}
	return nil, 0, failure
}

// fits reports whether the signature has the shape of this variant.
func (s *scheme) fits(d *ichido.Delivery) bool {
	if len(s.from) != 1 || s.from[0].kind != inHeader {
		return true
	}
	for _, value := range d.Header[s.from[0].name] {
		switch s.kind {
		case kindJWT:
			if looksLikeJWT(value, s.spec.StripPrefix) {
				return true
			}
		case kindMAC, kindSig:
			if s.grammar.fits(value) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// verify returns the index of the secret or key that verified.
func (s *scheme) verify(w *work, d *ichido.Delivery) (int, error) {
	switch s.kind {
	case kindToken:
		return s.verifyToken(w, d)
	case kindJWT:
		return s.verifyJWT(w, d)
	case kindNone:
		return 0, nil
	default:
		return s.verifySigned(w, d)
	}
}
