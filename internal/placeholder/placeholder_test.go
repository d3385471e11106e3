package placeholder

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"testing"
)

func TestWhatStandsForASecretIsAPlaceholder(t *testing.T) {
	for _, value := range []string{
		"", " ", "\t\n", "whsec_", "whpk_", "v1,whsec_",
		"undefined", "null", "None", "nil", "<nil>", "true", "FALSE", "undefined\n",
		"changeme", "change-me", "CHANGE_ME", "change me", "changeit", "change-this", "changeme-to-a-long-random-value", "whsec_changeme",
		"replaceme", "replace-with-a-random-secret", "fixme", "TODO", "tbd", "placeholder", "example",
		"secret", "password", "no-secret-provided", "[redacted]",
		"your-secret", "your_secret", "yoursecret", "your-webhook-signing-secret", "YOUR_STRIPE_KEY", "your token", "YourApiKey", "whsec_your-secret",
		"<secret>", "<put it here>", "${STRIPE_SECRET}", "a-${VAR}-b", "{{ .Values.secret }}",
		"xxx", "XXXXXXXXXXXXXXXX", "xxxx-xxxx-xxxx", "***", "whsec_xxxxxxxx", "whsec_...", "whsec_…", "...", "????", "----",
	} {
		if !Is(value) {
			t.Errorf("%q is taken for a secret", value)
		}
	}
}

func TestRealSecretsAreNotPlaceholders(t *testing.T) {
	for _, value := range []string{
		"It's a Secret to Everybody", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "8f742231b10e8888abcd99yyyzzz85a5",
		"mysecret", "secret-4f9a0c", "password1234567890", "null-island-7", "yourself-and-others-in-one-text", "example.com/9d1f", "xoxb-x1",
		"a", "0000000000000000",
	} {
		if Is(value) {
			t.Errorf("%q is taken for a placeholder", value)
		}
	}
	for range 10_000 {
		key := make([]byte, 24)
		rand.Read(key)
		for _, value := range []string{hex.EncodeToString(key), "whsec_" + base64.StdEncoding.EncodeToString(key)} {
			if Is(value) {
				t.Errorf("%q is taken for a placeholder", value)
			}
		}
	}
}
