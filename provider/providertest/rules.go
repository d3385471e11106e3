package providertest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"ichido.dev/ichido"
)

// span returns the encoded signature of a delivery and where it is.
func (r *runner) span(d *ichido.Delivery) (value string, start, end int) {
	value = d.Header.Get(r.c.Header)
	if r.c.Span == nil {
		return value, 0, len(value)
	}
	start, end = r.c.Span(value)
	return value, start, end
}

// withSignature returns a delivery with another text as its signature.
func (r *runner) withSignature(text string) *ichido.Delivery {
	d := r.delivery()
	value, start, end := r.span(d)
	d.Header[r.c.Header] = []string{value[:start] + text + value[end:]}
	return d
}

func (r *runner) signature() (text string, raw []byte) {
	value, start, end := r.span(r.delivery())
	text = value[start:end]
	raw, err := decode(text, r.c.Encoding)
	if err != nil || len(raw) == 0 {
		r.t.Errorf("the case's Span and Encoding do not find the signature: %v", err)
	}
	return text, raw
}

func decode(text, encoding string) ([]byte, error) {
	switch encoding {
	case Hex:
		return hex.DecodeString(text)
	case Base64:
		return base64.StdEncoding.DecodeString(text)
	case Base64URL:
		return base64.RawURLEncoding.DecodeString(text)
	case Base64Hex:
		digits, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		return hex.DecodeString(string(digits))
	}
	return []byte(text), nil
}

func (r *runner) encode(raw []byte) string {
	switch r.c.Encoding {
	case Hex:
		return hex.EncodeToString(raw)
	case Base64:
		return base64.StdEncoding.EncodeToString(raw)
	case Base64URL:
		return base64.RawURLEncoding.EncodeToString(raw)
	case Base64Hex:
		return base64.StdEncoding.EncodeToString([]byte(hex.EncodeToString(raw)))
	}
	return string(raw)
}

// signatureBits: every bit of the decoded signature counts.
func (r *runner) signatureBits() {
	if r.c.Header == "" {
		return
	}
	const rule, why = "signature bits", "a signature is right in all of its bits or wrong"
	text, raw := r.signature()
	for i := range len(raw) * 8 {
		if !r.tries(i) {
			continue
		}
		flipped := bytes.Clone(raw)
		flipped[i/8] ^= 1 << (i % 8)
		r.refuse(rule, why, r.withSignature(r.encode(flipped)), fmt.Sprintf("a signature with bit %d flipped", i))
	}
	if r.c.Encoding == Hex {
		return
	}
	for i, c := range []byte(text) { // the case of a letter is a bit of it too, but for hexadecimal
		if r.tries(i) && c|0x20 >= 'a' && c|0x20 <= 'z' {
			r.refuse(rule, why, r.withSignature(flip(text, i*8+5)), fmt.Sprintf("a signature with letter %d in the other case", i))
		}
	}
}

// signatureLength: a part of a signature is none, and neither is one with
// something added.
func (r *runner) signatureLength() {
	if r.c.Header == "" {
		return
	}
	const rule, why = "signature length", "a comparison over the shorter length can be guessed byte by byte"
	_, raw := r.signature()
	for n := range len(raw) {
		if !r.tries(len(raw) - 1 - n) {
			continue
		}
		r.refuse(rule, why, r.withSignature(r.encode(raw[:n])), fmt.Sprintf("the first %d of %d bytes of the signature", n, len(raw)))
	}
	for _, extra := range [][]byte{{0}, {'x'}, raw} {
		r.refuse(rule, why, r.withSignature(r.encode(slices.Concat(raw, extra))), "a signature with bytes added")
	}
	r.refuse(rule, why, r.withSignature(r.encode(make([]byte, len(raw)))), "a signature of zeros")
}

// signedText: every bit of what is signed counts.
func (r *runner) signedText() {
	const rule, why = "signed text", "what the signature covers cannot be changed"
	for _, name := range r.c.Signed {
		value := r.delivery().Header.Get(name)
		for i := range len(value) * 8 {
			if !r.tries(i) {
				continue
			}
			d := r.delivery()
			d.Header[name] = []string{flip(value, i)}
			r.refuse(rule, why, d, fmt.Sprintf("%s with bit %d flipped", name, i))
		}
	}
	if r.c.Header != "" {
		value := r.delivery().Header.Get(r.c.Header)
		for i := range len(value) * 8 {
			if !r.tries(i) {
				continue
			}
			d := r.delivery()
			d.Header[r.c.Header] = []string{flip(value, i)}
			r.identicalOrRefuse(rule, why, d, fmt.Sprintf("bit %d of %s", i, r.c.Header))
		}
	}
	r.changedBody()
}

func flip(text string, bit int) string {
	b := []byte(text)
	b[bit/8] ^= 1 << (bit % 8)
	return string(b)
}

// changedBody: where the body is signed, no other body passes.
func (r *runner) changedBody() {
	if r.c.Strength != ichido.Verified {
		return
	}
	const rule, why = "body", "the signature covers the whole body"
	for i := range len(r.c.Body) * 8 {
		if !r.tries(i) {
			continue
		}
		d := r.delivery()
		d.Body[i/8] ^= 1 << (i % 8)
		r.refuse(rule, why, d, fmt.Sprintf("a body with bit %d flipped", i))
	}
	for n := range r.c.Body {
		if !r.tries(len(r.c.Body) - 1 - n) {
			continue
		}
		d := r.delivery()
		d.Body = d.Body[:n]
		r.refuse(rule, why, d, fmt.Sprintf("the first %d bytes of the body", n))
	}
	for _, extra := range []string{" ", "\n", "\x00", "{}"} {
		d := r.delivery()
		d.Body = append(d.Body, extra...)
		r.refuse(rule, why, d, fmt.Sprintf("a body with %q added", extra))
	}
}

// spellings: another spelling of the right signature is the same event or is
// refused; it never makes a second one.
func (r *runner) spellings() {
	if r.c.Header == "" || r.c.Encoding == Text {
		return
	}
	const rule, why = "spellings", "the text of a signature identifies nothing"
	text, raw := r.signature()
	var others []string
	switch r.c.Encoding {
	case Hex:
		others = []string{strings.ToUpper(text), mixCase(text), "0x" + text}
	default:
		others = []string{
			strings.TrimRight(text, "="), text + "=", text + "==", text[:4] + "\r\n" + text[4:], text[:4] + "\n" + text[4:],
			base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw),
			spareBits(text),
		}
	}
	others = append(others, " "+text, text+" ", "\t"+text, text+"\n", text+"\x00", `"`+text+`"`)
	for _, other := range others {
		if other != text {
			r.sameOrRefuse(rule, why, r.withSignature(other), fmt.Sprintf("a signature written as %q", other))
		}
	}
}

func mixCase(text string) string {
	b := []byte(text)
	for i := 0; i < len(b); i += 2 {
		b[i] = strings.ToUpper(string(b[i]))[0]
	}
	return string(b)
}

// spareBits sets the bits of the last base64 digit that encode nothing.
func spareBits(text string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	bare := strings.TrimRight(text, "=")
	i := strings.IndexByte(digits, bare[len(bare)-1])
	if i < 0 || i+1 >= len(digits) {
		return text
	}
	return bare[:len(bare)-1] + string(digits[i+1]) + text[len(bare):]
}

// unsignedHeaders: what is not signed identifies nothing.
func (r *runner) unsignedHeaders() {
	const rule, why = "unsigned headers", "anyone who sees a delivery could send it again under another id"
	for _, name := range append([]string{"X-Request-Id", "Content-Type", "Date"}, r.c.Unsigned...) {
		name = http.CanonicalHeaderKey(name)
		for _, values := range [][]string{nil, {"another-value"}, {""}, {"a", "b"}, {strings.Repeat("x", 300)}, {"application/x-www-form-urlencoded"}, {"<b>\x01\xff"}} {
			d := r.delivery()
			d.Header[name] = values
			r.sameOrRefuse(rule, why, d, fmt.Sprintf("%s changed to %.40q", name, values))
		}
	}
}

// weakKeys: nobody signs with a key that everybody has.
func (r *runner) weakKeys() {
	if r.c.SignKey == nil {
		return
	}
	for _, key := range []string{"", " ", "\n", "undefined", "null", "None", "<nil>", "false", "changeme", "secret"} {
		r.refuse("weak keys", "a missing secret must not verify anything", r.c.SignKey(key), fmt.Sprintf("a delivery signed with the key %q", key))
	}
}

// oddBytes: whatever bytes a header has, the answer is a refusal.
func (r *runner) oddBytes() {
	const rule, why = "odd bytes", "a malformed header is a wrong one"
	for _, name := range r.headers() {
		value := r.delivery().Header.Get(name)
		for b := range 256 {
			if !r.tries(b) {
				continue
			}
			for _, odd := range []string{string([]byte{byte(b)}), value + string([]byte{byte(b)}), string([]byte{byte(b)}) + value} {
				d := r.delivery()
				d.Header[name] = []string{odd}
				r.identicalOrRefuse(rule, why, d, fmt.Sprintf("byte %#x in %s", b, name))
			}
		}
		for _, odd := range []string{strings.Repeat(value, 1000), strings.Repeat(value+",", 1000), strings.Repeat(value+" ", 1000), strings.Repeat(".", 1<<20), strings.Repeat("=", 4096), strings.Repeat("a,", 4096)} {
			d := r.delivery()
			d.Header[name] = []string{odd}
			r.identicalOrRefuse(rule, why, d, fmt.Sprintf("%d bytes in %s", len(odd), name))
		}
	}
}

// concurrent: one provider serves all requests at once.
func (r *runner) concurrent() {
	const rule, why = "concurrency", "a provider is shared by all requests"
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 25 {
				d := r.delivery()
				bad := i%2 == 1 && r.c.Header != ""
				if bad {
					d.Header[r.c.Header] = []string{damage(d.Header.Get(r.c.Header))}
				}
				p, err := r.c.Provider.Verify(d)
				if bad == (err == nil) || err == nil && p.Key != r.proof.Key {
					r.t.Errorf("%s: got key %q and error %v (%s)", rule, p.Key, err, why)
					return
				}
			}
		})
	}
	group.Wait()
}

// window: the tolerance holds in both directions, the edges included.
func (r *runner) window() {
	if r.c.Tolerance == 0 {
		return
	}
	const rule, why = "window", "an old request must not come back, and one from the future must not live long"
	for _, edge := range []time.Duration{-r.c.Tolerance, r.c.Tolerance, 0} {
		d := r.delivery()
		d.ReceivedAt = r.c.Now.Add(edge)
		if _, err := r.verify(rule, d); err != nil {
			r.fail(rule, why, "refused at the edge, received %v after it was sent: %v", edge, err)
		}
	}
	for _, past := range []time.Duration{r.c.Tolerance + r.c.Unit, 2 * r.c.Tolerance, r.c.Tolerance + 24*time.Hour, 100 * 365 * 24 * time.Hour} {
		for _, off := range []time.Duration{past, -past} {
			d := r.delivery()
			d.ReceivedAt = r.c.Now.Add(off)
			r.refuse(rule, why, d, fmt.Sprintf("a delivery received %v after it was sent", off))
		}
	}
}
