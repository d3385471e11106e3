package provider

import (
	"strings"
	"testing"
)

const goodProfile = `
id: x
verify:
  - kind: mac
    alg: hmac-sha256
    msg: "{ts}.{body}"
    ts: {from: "header:X-T", unit: s, tolerance: 300}
    sig: {from: "header:X-S", encoding: hex}
events: {id: "json:id", type: "json:type"}
`

// What the loader refuses, each by one change to a good profile.
func TestLoaderRefuses(t *testing.T) {
	if _, err := parseProfile([]byte(goodProfile)); err != nil {
		t.Fatalf("the good profile is refused: %v", err)
	}
	mac := "  - kind: mac\n    alg: hmac-sha256\n"
	jwt := "verify: [{kind: jwt, from: \"header:X-J\", algs: [RS256]}]\nevents: {key: signed}\n"
	tests := []struct{ name, old, new, want string }{
		{"an unknown field", "id: x", "id: x\ncolour: red", "unknown field"},
		{"an unknown field in a variant", "alg: hmac-sha256", "alg: hmac-sha256\n    nonce: 1", "unknown field"},
		{"an anchor", "id: x", "id: &a x", "anchors"},
		{"no id", "id: x", "id: \"\"", "id must be"},
		{"no variants", goodProfile, "id: x\nevents: {key: body}", "verify is empty"},
		{"two variants of one name", mac, mac + "    sig: {from: \"header:A\", encoding: hex}\n" + mac, "occurs twice"},
		{"an unknown kind", "kind: mac", "kind: magic", "kind"},
		{"an unknown algorithm", "hmac-sha256", "sha256", "alg"},
		{"a public-key algorithm for a mac", "hmac-sha256", "ed25519", "alg"},
		{"no body in the message", `"{ts}.{body}"`, `"{ts}."`, "does not cover {body}"},
		{"the body twice", `"{ts}.{body}"`, `"{ts}.{body}{body}"`, "occurs twice"},
		{"the body twice, once as a digest", `"{ts}.{body}"`, `"{ts}.{body}{body|sha256hex}"`, "occurs twice"},
		{"an unknown form of the body", `"{ts}.{body}"`, `"{ts}.{body|rot13}"`, "filter"},
		{"a setting in the message that may be left out", `"{ts}.{body}"`, `"{config:url}{ts}.{body}"`, "no setting with required"},
		{"an unknown placeholder", `"{ts}.{body}"`, `"{url}.{body}"`, "unknown"},
		{"an optional group", `"{ts}.{body}"`, `"[{ts}].{body}"`, "doubled"},
		{"an open placeholder", `"{ts}.{body}"`, `"{ts}.{body"`, "without"},
		{"a member in the message", `"{ts}.{body}"`, `"{json:a}.{body}"`, "cannot be signed"},
		{"ts in the message but not set", "    ts: {from: \"header:X-T\", unit: s, tolerance: 300}\n", "", "ts is not set"},
		{"an unknown unit", "unit: s", "unit: minutes", "unit"},
		{"a tolerance of zero", "tolerance: 300", "tolerance: 0", "must be positive"},
		{"a field twice", "id: x", "id: x\nid: y", "already defined"},
		{"a negative tolerance", "tolerance: 300", "tolerance: -1", "must be positive"},
		{"a tolerance over an hour", "tolerance: 300", "tolerance: 3601", "long_ok"},
		{"no signature", "    sig: {from: \"header:X-S\", encoding: hex}\n", "", "sig is missing"},
		{"no encoding", `sig: {from: "header:X-S", encoding: hex}`, `sig: {from: "header:X-S"}`, "encoding"},
		{"an unknown grammar", "encoding: hex", "encoding: hex, grammar: magic", "grammar"},
		{"kv without names", "encoding: hex", "encoding: hex, grammar: kv, sep: \",\"", "keys"},
		{"a list without a separator", "encoding: hex", "encoding: hex, grammar: list", "sep"},
		{"names for a raw signature", "encoding: hex", "encoding: hex, keys: [v1]", "mean nothing"},
		{"a signature in a claim", `from: "header:X-S"`, `from: "claim:x"`, "not possible"},
		{"a malformed place", `from: "header:X-S"`, `from: "X-S"`, "kind:name"},
		{"a malformed header name", `from: "header:X-S"`, `from: "header:X S"`, "header name"},
		{"an unknown key decoder", "alg: hmac-sha256", "alg: hmac-sha256\n    key: {decode: rot13}", "decode"},
		{"a key set by http", "alg: hmac-sha256", "alg: hmac-sha256\n    key: {source: jwks, url: \"http://a\"}", "https"},
		{"an id in an unsigned header", `id: "json:id"`, `id: "header:X-Id"`, "not covered"},
		{"an id in the query", `id: "json:id"`, `id: "query:id"`, "not covered"},
		{"an id that touches the time", `"{ts}.{body}"`, `"{header:X-Id}{ts}.{body}"`, ""},
		{"a key of an unsigned header", `id: "json:id"`, `key: "{header:X-Id}"`, "not covered"},
		{"a key without a placeholder", `id: "json:id"`, `key: "all"`, "all events would be one"},
		{"a key with touching placeholders", `id: "json:id"`, `key: "{json:a}{json:b}"`, "touch"},
		{"neither id nor key", `id: "json:id", `, ``, "nothing would identify"},
		{"an unknown fingerprint", `id: "json:id"`, `id: "json:id", fingerprint: none`, "fingerprint"},
		{"an unsigned handshake", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, reply: {status: 200, content_type: text/plain}}]", "signed"},
		{"an echo without a pattern", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, signed: true, reply: {status: 200, content_type: text/plain, body: \"{json:c}\"}}]", "pattern"},
		{"an echo of anything", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, signed: true, pattern: \"^.*$\", reply: {status: 200, content_type: text/plain, body: \"{json:c}\"}}]", "pattern"},
		{"an echo without a bound", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, signed: true, pattern: \"^[a-z]+$\", reply: {status: 200, content_type: text/plain, body: \"{json:c}\"}}]", "pattern"},
		{"an echo as HTML", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, signed: true, reply: {status: 200, content_type: text/html}}]", "HTML"},
		{"a GET that is signed", "id: x", "id: x\nchallenge: [{method: GET, when: {\"query:c\": \"*\"}, signed: true, reply: {status: 200, content_type: text/plain}}]", "leave signed"},
		{"a GET that compares a member", "id: x", "id: x\nchallenge: [{method: GET, when: {\"json:c\": \"*\"}, reply: {status: 200, content_type: text/plain}}]", "not possible"},
		{"a GET that echoes anything", "id: x", "id: x\nchallenge: [{method: GET, when: {\"query:c\": \"*\"}, reply: {status: 200, content_type: text/plain, body: \"{query:c}\"}}]", "pattern"},
		{"a POST that is answered otherwise", "id: x", "id: x\nchallenge: [{when: {\"json:type\": a}, signed: true, otherwise: 404, reply: {status: 200, content_type: text/plain}}]", "otherwise"},
		{"a PUT", "id: x", "id: x\nchallenge: [{method: PUT, when: {\"query:c\": a}, reply: {status: 200, content_type: text/plain}}]", "method"},
		{"a value that is no setting", "id: x", "id: x\nchallenge: [{method: GET, when: {\"query:c\": \"{config:c}\"}, reply: {status: 200, content_type: text/plain}}]", "no setting"},
		{"a MAC of anything that may be echoed", "id: x", "id: x\nchallenge: [{method: GET, when: {\"query:c\": \"*\"}, pattern: \"^[A-Za-z0-9._~+/=-]{1,512}$\", reply: {status: 200, content_type: text/plain, body: \"{mac-hex:query:c}\"}}]", "signed for a stranger"},
		{"a long MAC", "id: x", "id: x\nchallenge: [{method: GET, when: {\"query:c\": \"*\"}, pattern: \"^[A-Za-z0-9_-]{1,129}$\", reply: {status: 200, content_type: text/plain, body: \"{mac-hex:query:c}\"}}]", "signed for a stranger"},
		{"a MAC in the message", `"{ts}.{body}"`, `"{mac-hex:query:c}{ts}.{body}"`, "cannot be signed"},
		{"a parameter in the message", `"{ts}.{body}"`, `"{query:c}{ts}.{body}"`, "cannot be signed"},
		{"an answer that is no 2xx", "id: x", "id: x\nrespond: {accepted: {status: 302, content_type: text/plain}}", "2xx"},
		{"a jwt without algorithms", goodProfile, "id: x\n" + strings.Replace(jwt, "algs: [RS256]", "algs: []", 1), "algs is missing"},
		{"a jwt with none", goodProfile, "id: x\n" + strings.Replace(jwt, "RS256", "none", 1), "never"},
		{"a jwt with HS and RS", goodProfile, "id: x\n" + strings.Replace(jwt, "RS256", "RS256, HS256", 1), "mixes"},
		{"a jwt keyed on the body", goodProfile, "id: x\n" + strings.Replace(jwt, "key: signed", "key: body", 1), "not covered"},
		{"a jwt with an id in the body", goodProfile, "id: x\n" + strings.Replace(jwt, "key: signed", "id: \"json:id\"", 1), "not covered"},
		{"kind none", goodProfile, "id: x\nverify: [{kind: none}]\nevents: {key: body}", "proves nothing"},
		{"no YAML", goodProfile, "\t{", "profile"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(goodProfile, tt.old, tt.new, 1)
			if text == goodProfile {
				t.Fatal("the change changes nothing")
			}
			_, err := parseProfile([]byte(text))
			if tt.want == "" { // allowed while it is not the id
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				text = strings.Replace(text, `id: "json:id"`, `id: "header:X-Id"`, 1)
				_, err = parseProfile([]byte(text))
				tt.want = "touches"
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}

// A time that the signature does not cover is no time: neither fresh nor
// stale.
func TestUnsignedTimeIsNoTime(t *testing.T) {
	f, err := parseProfile([]byte(strings.Replace(goodProfile, `"{ts}.{body}"`, `"{body}"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Variants[0].TimeSigned || f.Variants[0].Tolerance != 0 {
		t.Errorf("variant is %+v", f.Variants[0])
	}
}

func TestAllLoaderProblemsAreReportedTogether(t *testing.T) {
	text := strings.NewReplacer("hmac-sha256", "x", "unit: s", "unit: y", "encoding: hex", "encoding: z").Replace(goodProfile)
	_, err := parseProfile([]byte(text))
	for _, want := range []string{"alg", "unit", "encoding"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
