package outbound

import (
	"net/http"
	"strings"
	"testing"
)

func TestHeadersOfTheConnectionAndOfCredentialsAreNeverForwarded(t *testing.T) {
	for _, name := range []string{
		"Connection", "keep-alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Expect",
		"Proxy-Authorization", "Proxy-Connection", "Proxy-Anything", "Cookie", "Set-Cookie", "Authorization", "authorization",
		"X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Anything", "Forwarded", "X-Real-IP", "Via",
		"X-Hub-Signature-256", "Stripe-Signature", "X-Shopify-Hmac-Sha256", "X-Gitlab-Token", "X-Hook-Secret", "X-Api-Key", "X-Amz-Credential",
		"webhook-id", "webhook-signature", "svix-id", "ichido-source", "User-Agent", "Sec-Fetch-Mode",
		"", "X Event", "X-Event:", "X-Event\r\nEvil", "Ünicode", strings.Repeat("x", 129),
	} {
		if canonical, err := forwardable(name); err == nil {
			t.Errorf("%q is forwarded as %s", name, canonical)
		}
	}
	for _, name := range []string{"X-GitHub-Event", "x-github-delivery", "Linear-Event", "X-Shopify-Topic"} {
		if canonical, err := forwardable(name); err != nil || canonical != http.CanonicalHeaderKey(name) {
			t.Errorf("%q: %s, %v", name, canonical, err)
		}
	}
}

func TestHeaderText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"push":                               "push",
		"invoice.paid v2":                    "invoice.paid v2",
		" a ":                                "%20a%20",
		"a\r\nEvil: 1":                       "a%0D%0AEvil: 1",
		"a\x00b\x7f":                         "a%00b%7F",
		"100%":                               "100%25",
		"日":                                  "%E6%97%A5",
		"\xff":                               "%FF",
		strings.Repeat("x", 300):             strings.Repeat("x", 256),
		strings.Repeat("\n", 99):             strings.Repeat("%0A", 85),
		"0" + strings.Repeat("%", 84) + "  ": "0" + strings.Repeat("%25", 84), // a cut between spaces
	} {
		if got := headerText(in); got != want {
			t.Errorf("headerText(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzHeaderTextIsAlwaysAValidValue(f *testing.F) {
	for _, seed := range []string{"push", "a\r\nb: c", "日本", " x ", "%", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := headerText(in)
		if !isPrintable(out) || len(out) > 256 || strings.TrimSpace(out) != out {
			t.Errorf("headerText(%q) = %q", in, out)
		}
	})
}
