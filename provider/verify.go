package provider

import (
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"strings"

	"ichido.dev/ichido"
)

// verifySigned checks the groups of the signature headers one after the other
// until one passes. Most schemes have one header with one group. What w holds
// then (the time, the signed text) is of the group that passed, for a group is
// judged by its own time only.
func (s *scheme) verifySigned(w *work, d *ichido.Delivery) (int, error) {
	if err := s.readGroups(w, d); err != nil {
		return 0, err
	}
	var failure error = errMissing
	genuine := false // whether failure is of a group that verified
	for _, group := range w.groups[:w.ngroups] {
		index, err := s.verifyGroup(w, d, group)
		late := false
		if err == nil {
			err = s.judgeTime(w, d)
			late = err != nil
		}
		if err == nil {
			return index, nil
		}
		if !genuine {
			failure, genuine = err, late
		}
	}
	return 0, failure
}

// readGroups lists the groups of all signature headers. Each header may occur
// once, whether or not another one would do.
func (s *scheme) readGroups(w *work, d *ichido.Delivery) error {
	w.ngroups = 0
	for _, at := range s.from {
		value, err := s.signatureValue(w, d, at)
		if err == errMissing {
			continue
		}
		if err != nil {
			return err
		}
		for rest, more := value, true; more; {
			group := rest
			more = false
			if s.grammar.group != "" {
				group, rest, more = strings.Cut(rest, s.grammar.group)
			}
			if w.ngroups == maxCandidates {
				return errMalformed
			}
			w.groups[w.ngroups] = group
			w.ngroups++
		}
	}
	return nil
}

// judgeTime judges the signed time, after the signature held: so only who can
// sign learns what our clock says.
func (s *scheme) judgeTime(w *work, d *ichido.Delivery) error {
	if s.time == nil {
		return nil
	}
	if s.time.kind == inJSON {
		if s.identity.read(w, d) != envelopeObject {
			return errTimeMissing // who cannot show a time is not known to be fresh
		}
		if err := s.readBodyTime(w, w.members, s.identity.timeSlot); err != nil {
			return err
		}
	}
	if s.tolerance == 0 {
		return nil
	}
	return fresh(w.time, d.ReceivedAt, s.unit, s.tolerance)
}

func (s *scheme) verifyGroup(w *work, d *ichido.Delivery, group string) (int, error) {
	w.sig.n, w.sig.nfields = 0, 0
	if !s.grammar.parse(group, &w.sig) {
		return 0, errMalformed
	}
	w.n = 0
	for _, candidate := range w.sig.candidates[:w.sig.n] {
		if size, ok := s.grammar.decode(w.macs[w.n][:], &w.text, candidate); ok {
			w.sizes[w.n] = size
			w.n++
		}
	}
	if w.n == 0 || s.kind == kindSig && w.n > maxPublicCandidates {
		return 0, errMalformed
	}
	if err := s.readTime(w, d); err != nil {
		return 0, err
	}
	var err *ichido.Error
	if w.head, err = s.append(w.head[:0], s.head, w, d); err != nil {
		return 0, err
	}
	if w.tail, err = s.append(w.tail[:0], s.tail, w, d); err != nil {
		return 0, err
	}
	if s.couldBeProof(w, d) {
		return 0, errMalformed
	}
	if s.kind == kindMAC {
		return s.checkMAC(w, d)
	}
	return s.checkSignatures(w, d)
}

// checkMAC compares every candidate with the MAC under every live secret, in
// time that depends on neither.
func (s *scheme) checkMAC(w *work, d *ichido.Delivery) (int, error) {
	index, live := -1, 0
	for _, k := range s.keys {
		if !k.secret.live(d.ReceivedAt) {
			continue
		}
		live++
		mac := k.states.Get().(hash.Hash)
		mac.Reset()
		s.writeMessage(mac, k.public.([]byte), w.head, d.Body, w.tail)
		w.sum = mac.Sum(w.sum[:0])
		k.states.Put(mac)
		for c := range w.n {
			match := subtle.ConstantTimeCompare(w.sum, w.macs[c][:w.sizes[c]])
			index = subtle.ConstantTimeSelect(match&isNegative(index), k.index, index)
		}
	}
	switch {
	case live == 0:
		return 0, errNoLiveSecret
	case index < 0:
		return 0, errMismatch
	}
	return index, nil
}

// isNegative returns 1 for a negative number, 0 for any other.
func isNegative(n int) int { return int(uint64(n) >> 63) }

// signatureValue reads a signature from its place, which may be in the body.
func (s *scheme) signatureValue(w *work, d *ichido.Delivery, at place) (string, *ichido.Error) {
	switch at.kind {
	case inJSON:
		value, _, err := s.bodyMember(w, d, at)
		return value, err
	case inForm:
		return queryValue(string(d.Body), at.name)
	}
	return s.value(d, at)
}

// bodyMember reads a text member of a body that is not verified yet, for the
// schemes that put the proof there. It returns where the value stands.
func (s *scheme) bodyMember(w *work, d *ichido.Delivery, at place) (string, member, *ichido.Error) {
	var found [1]member
	reader := newEnvelope([][]string{at.path})
	if reader.read(&w.scanner, d.Body, found[:]) != envelopeObject {
		return "", found[0], errMissing
	}
	w.scanner.release()
	switch found[0].state {
	case memberFound:
		text, ok := unquote(found[0].text(d.Body))
		if !ok {
			return "", found[0], errMalformed
		}
		return text, found[0], nil
	case memberAmbiguous:
		return "", found[0], errRepeated
	}
	return "", found[0], errMissing
}

// verifyToken compares a shared token, over digests, so that its length does
// not show either.
func (s *scheme) verifyToken(w *work, d *ichido.Delivery) (int, error) {
	value, err := s.tokenValue(w, d)
	if err != nil {
		return 0, err
	}
	token, found := strings.CutPrefix(value, s.spec.StripPrefix)
	if !found || len(token) > maxSecretBytes {
		return 0, errMalformed
	}
	w.text = append(w.text[:0], token...)
	digest := sha256.Sum256(w.text)
	clear(w.text)
	index, live := -1, 0
	for _, k := range s.keys {
		if !k.secret.live(d.ReceivedAt) {
			continue
		}
		live++
		match := subtle.ConstantTimeCompare(digest[:], k.digest[:])
		index = subtle.ConstantTimeSelect(match&isNegative(index), k.index, index)
	}
	switch {
	case live == 0:
		return 0, errNoLiveSecret
	case index < 0:
		return 0, errTokenMismatch
	}
	return index, nil
}
