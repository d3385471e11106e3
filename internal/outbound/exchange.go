package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
)

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most as many bytes as were asked for

	// Dropped is how many bytes of the body were not read: -1 when there were
	// more and nobody said how many.
	Dropped int64
}

// Error says that a request got no answer, or not the whole of it. Its text
// holds the scheme and host of the URL and an enumerated cause; nothing else
// of the request, and nothing that the other side wrote.
type Error struct {
	Target string // "scheme://host:port"
	Cause  string
	err    error // context.Canceled, context.DeadlineExceeded, ErrForbidden or nil
}

// Error returns "scheme://host:port: cause".
func (e *Error) Error() string { return e.Target + ": " + e.Cause }

// Unwrap returns the error to test for with errors.Is: that of the context,
// [ErrForbidden], or nil.
func (e *Error) Unwrap() error { return e.err }

// Target returns the scheme, host and port of u: what may be shown of it.
func Target(u *url.URL) string { return u.Scheme + "://" + u.Host }

// Exchange sends a request and reads at most limit bytes of the answer's
// body. It never follows a redirect, whatever the client does. When the
// header came but the body broke off, it returns both the answer, with the
// body so far, and an error. Errors are of type [*Error].
func Exchange(c *http.Client, req *http.Request, limit int64) (*Answer, error) {
	once := *c
	once.CheckRedirect = refuseRedirect
	resp, err := once.Do(req)
	if err != nil {
		return nil, explain(req, err)
	}
	defer resp.Body.Close()
	answer := &Answer{Status: resp.StatusCode, Header: resp.Header}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if int64(len(body)) > limit {
		body = body[:limit]
		answer.Dropped = -1
		if resp.ContentLength > limit {
			answer.Dropped = resp.ContentLength - limit
		}
	}
	answer.Body = body
	if err != nil {
		return answer, explain(req, err)
	}
	return answer, nil
}

// explain replaces an error of net/http, which holds the whole URL and
// sometimes text of the peer, by one that holds neither.
func explain(req *http.Request, err error) *Error {
	e := &Error{Target: Target(req.URL), Cause: "no valid answer"}
	var (
		dns       *net.DNSError
		timeout   net.Error
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		expired   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.Is(err, context.Canceled):
		e.Cause, e.err = "canceled", context.Canceled
	case errors.Is(err, ErrForbidden):
		e.Cause, e.err = ErrForbidden.Error(), ErrForbidden
	case errors.As(err, &dns) && dns.IsNotFound:
		e.Cause = "no such host"
	case errors.As(err, &dns) && !dns.IsTimeout:
		e.Cause = "the name could not be looked up"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		e.Cause, e.err = "timed out", context.DeadlineExceeded
	case errors.As(err, &hostname):
		e.Cause = "the certificate is for another host"
	case errors.As(err, &authority):
		e.Cause = "the certificate is by an unknown authority"
	case errors.As(err, &expired), errors.As(err, &cert):
		e.Cause = "the certificate is not valid"
	case errors.As(err, &record), errors.As(err, &alert):
		e.Cause = "no TLS connection"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Cause = "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.Cause = "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.Cause = "no route to the host"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Cause = "the connection ended early"
	}
	return e
}
