package provider

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// partDigest is a placeholder for the body in another form, which binds the
// body as {body} does: {body|sha256hex}.
const partDigest = "body|"

// filters are the forms of the body that senders sign in its place.
var filters = map[string]func(b, body []byte) ([]byte, bool){
	"sha256hex": func(b, body []byte) ([]byte, bool) {
		sum := sha256.Sum256(body)
		return hex.AppendEncode(b, sum[:]), true
	},
	"sha256raw": func(b, body []byte) ([]byte, bool) {
		sum := sha256.Sum256(body)
		return append(b, sum[:]...), true
	},
	"sha512b64": func(b, body []byte) ([]byte, bool) {
		sum := sha512.Sum512(body)
		return base64.StdEncoding.AppendEncode(b, sum[:]), true
	},
	// As JSON.stringify writes a text: what need not be escaped is not.
	"jsonstr": func(b, body []byte) ([]byte, bool) {
		quoted, err := jsontext.AppendQuote(b, body)
		return quoted, err == nil
	},
}

// bindsBody reports whether the body is part of the text, as it is or in
// another form.
func (t template) bindsBody() bool { return t.has(partBody) || t.has(partDigest) }
