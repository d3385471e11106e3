package outbound

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// never lists headers that are not forwarded even if an operator names them:
// those of one connection, those that say who is asking, and those that the
// delivery itself sets. Names are lower case.
var never = [...]string{
	"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect",
	"forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip",
	"user-agent",
}

// neverPrefix lists beginnings of such names.
var neverPrefix = [...]string{"proxy-", "x-forwarded-", "webhook-", "svix-", "ichido-", "sec-"}

// neverPart lists words that a name with a credential or a proof in it has.
// The sender's signature is one: the delivery is signed anew, by ichido's key.
var neverPart = [...]string{
	"authoriz", "cookie", "signature", "hmac", "token", "secret", "password", "credential", "api-key", "apikey",
}

// forwardable returns the canonical form of a header name that an operator
// wants forwarded, or an error that says why it is not.
func forwardable(name string) (string, error) {
	if !validHeaderName(name) {
		return "", fmt.Errorf("header %q is not a header name", name)
	}
	lower := strings.ToLower(name)
	refused := false
	for _, n := range never {
		refused = refused || lower == n
	}
	for _, p := range neverPrefix {
		refused = refused || strings.HasPrefix(lower, p)
	}
	for _, p := range neverPart {
		refused = refused || strings.Contains(lower, p)
	}
	if refused {
		return "", fmt.Errorf("header %q is never forwarded: it belongs to the connection, may hold a credential, or is set by ichido", name)
	}
	return textproto.CanonicalMIMEHeaderKey(name), nil
}

func validHeaderName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// copyHeaders copies the first value of the named headers. A value with a
// byte outside printable ASCII is left out: receivers differ in what they
// make of such bytes.
func copyHeaders(to, from http.Header, names []string) {
	for _, name := range names {
		if value := from.Get(name); value != "" && isPrintable(value) {
			to.Set(name, value)
		}
	}
}

func isPrintable(value string) bool {
	for _, c := range []byte(value) {
		if (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// headerText makes any text fit for a header value: printable ASCII stays,
// all other bytes, '%', and spaces at the ends are percent-encoded, and what
// is longer than 256 bytes is cut.
func headerText(text string) string {
	const limit = 256
	var b strings.Builder
	for i, c := range []byte(text) {
		edge := c == ' ' && (i == 0 || i == len(text)-1)
		piece := string(rune(c))
		if c < ' ' || c > '~' || c == '%' || edge {
			piece = fmt.Sprintf("%%%02X", c)
		}
		if b.Len()+len(piece) > limit {
			break
		}
		b.WriteString(piece)
	}
	return strings.TrimRight(b.String(), " ") // of a cut before the end
}
