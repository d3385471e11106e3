package provider

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"ichido.dev/ichido"
)

// The schemes of senders that have no profile here, as a check of the
// language: every grammar, key decoder, time unit, algorithm and verb is used
// by one of them.
func TestLanguageVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/language.json")
	if err != nil {
		t.Fatal(err)
	}
	var entries []struct {
		Profile string
		Vectors []struct {
			Secret  any
			Headers map[string]string
			Body    string
			URL     string
			Now     int64
			Expect  string
			Because string `json:"reject_because"`
		}
	}
	if err := json.Unmarshal(data, &entries); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, e := range entries {
		f, err := parseProfile([]byte(e.Profile))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for i, v := range e.Vectors {
			c := Config{AllowShortSecret: true}
			switch secret := v.Secret.(type) {
			case string:
				c.Secrets = []Secret{{Value: secret}}
			case []any:
				for _, s := range secret {
					c.Secrets = append(c.Secrets, Secret{Value: s.(string)})
				}
			}
			ran++
			source, err := newSource(f, c)
			if err != nil {
				if v.Expect == "accept" {
					t.Errorf("%s vector %d: %v", f.ID, i, err)
				}
				continue
			}
			d := &ichido.Delivery{Method: http.MethodPost, Header: http.Header{}, Body: []byte(v.Body), ReceivedAt: time.Unix(v.Now, 0)}
			for name, value := range v.Headers {
				d.Header.Set(name, value)
			}
			if u, err := url.Parse(v.URL); err == nil {
				d.RawQuery = u.RawQuery
			}
			if _, err = source.Provider.Verify(d); (err == nil) != (v.Expect == "accept") {
				t.Errorf("%s vector %d: got %v, want %s %s", f.ID, i, err, v.Expect, v.Because)
			}
		}
	}
	t.Logf("%d schemes, %d vectors", len(entries), ran)
	if ran < 90 {
		t.Errorf("only %d vectors ran", ran)
	}
	for _, word := range []string{
		"positional", "kv", "tagged", "group_sep", "prefix_ci", "base64url", "base64-of-hex", "rfc3339", "iso-utc", "http-date", "unit: ms",
		"rsa-pkcs1", "ed25519", "hmac-sha512", "suffix", "basic", "json:passcode", "body_hash", "iat_tolerance", "kind: jwt",
	} {
		if !strings.Contains(string(data), word) {
			t.Errorf("no scheme uses %s", word)
		}
	}
}
