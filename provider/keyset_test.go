package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"ichido.dev/ichido"
)

// keyServer serves whatever its answer says, and counts requests.
type keyServer struct {
	*httptest.Server
	mu     sync.Mutex
	hits   int
	answer http.HandlerFunc
}

func newKeyServer(t *testing.T, answer http.HandlerFunc) *keyServer {
	s := &keyServer{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.hits++
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *keyServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

func serve(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }
}

func fail(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }
}

// v1a verifies a delivery that our Ed25519 key signed, received at a time.
func v1a(t *testing.T, p ichido.Provider, at time.Time) error {
	t.Helper()
	h, err := Sign("gemini", SignConfig{Variant: "v1a", Secret: suiteSeed, ID: "wh-1", Time: at}, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte("{}"), ReceivedAt: at})
	return err
}

func forgedV1a(p ichido.Provider, at time.Time) error {
	h := http.Header{"Webhook-Id": {"wh-1"}, "Webhook-Timestamp": {formatTime(at, unitSeconds)}}
	h.Set("Webhook-Signature", "v1a,"+strings.Repeat("A", 86)+"==")
	_, err := p.Verify(&ichido.Delivery{Method: http.MethodPost, Header: h, Body: []byte("{}"), ReceivedAt: at})
	return err
}

func keySetSource(t *testing.T, url string) ichido.Provider {
	t.Helper()
	return dynamicSource(t, Config{KeySet: &KeySet{URL: url}})
}

func TestKeySetIsFetchedOnce(t *testing.T) {
	server := newKeyServer(t, serve(suiteKeySet(t)))
	p := keySetSource(t, server.URL)
	if server.requests() != 0 {
		t.Error("fetched before the first delivery")
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if err := v1a(t, p, suiteNow); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	group.Wait()
	if server.requests() != 1 {
		t.Errorf("%d requests", server.requests())
	}
}

// Until a first set was fetched nothing can be told: the sender shall come
// again.
func TestKeySetThatWasNeverFetchedIsNoRefusal(t *testing.T) {
	server := newKeyServer(t, fail(500))
	p := keySetSource(t, server.URL)
	for range 50 {
		if code := codeOf(v1a(t, p, suiteNow)); code != ichido.CodeUnavailable {
			t.Fatalf("code is %q", code)
		}
	}
	if server.requests() != 1 {
		t.Errorf("%d requests while it is down", server.requests())
	}
	server.set(serve(suiteKeySet(t)))
	if err := v1a(t, p, suiteNow.Add(keySetRetry)); err != nil {
		t.Errorf("refused after it came back: %v", err)
	}
}

func TestLastGoodKeySetIsKept(t *testing.T) {
	good := suiteKeySet(t)
	var tooMany jose.JSONWebKeySet
	for i := range maxKeySetKeys + 1 {
		tooMany.Keys = append(tooMany.Keys, jose.JSONWebKey{Key: suiteEd.Public(), KeyID: fmt.Sprint(i)})
	}
	many, _ := json.Marshal(tooMany)
	elsewhere := newKeyServer(t, serve(good))
	bad := map[string]http.HandlerFunc{
		"500": fail(500), "404": fail(404), "HTML": serve([]byte("<html>")), "empty": serve(nil), "no keys": serve([]byte(`{"keys":[]}`)),
		"only an HMAC key": serve([]byte(`{"keys":[{"kty":"oct","kid":"rsa-1","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQ"}]}`)),
		"10 MiB":           serve([]byte(`{"keys":[{"kty":"` + strings.Repeat("x", 10<<20) + `"}]}`)), "too many": serve(many),
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
	}
	for name, answer := range bad {
		t.Run(name, func(t *testing.T) {
			server := newKeyServer(t, serve(good))
			p := keySetSource(t, server.URL)
			if err := v1a(t, p, suiteNow); err != nil {
				t.Fatal(err)
			}
			server.set(answer)
			late := suiteNow.Add(2 * keySetMaxAge)
			if err := v1a(t, p, late); err != nil {
				t.Errorf("refused: %v", err)
			}
			if server.requests() != 2 {
				t.Errorf("%d requests", server.requests())
			}
			server.set(serve(good))
			fresh := keySetSource(t, server.URL)
			server.set(answer)
			if code := codeOf(v1a(t, fresh, late)); code != ichido.CodeUnavailable {
				t.Errorf("without a first set the code is %q", code)
			}
		})
	}
	if elsewhere.requests() != 0 {
		t.Error("a redirect was followed")
	}
}

// Forged deliveries cannot make us ask the key server more than once in five
// minutes.
func TestForgeriesDoNotRefreshTheKeySet(t *testing.T) {
	server := newKeyServer(t, serve(suiteKeySet(t)))
	p := keySetSource(t, server.URL)
	if err := v1a(t, p, suiteNow); err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		if err := forgedV1a(p, suiteNow.Add(time.Duration(i)*time.Second)); codeOf(err) != ichido.CodeSignature {
			t.Fatalf("got %v", err)
		}
		verifyToken(p, makeUnknownKid, suiteNow.Add(time.Duration(i)*time.Second))
	}
	if n := server.requests(); n > 3 { // one at the start, and two in ten minutes
		t.Errorf("%d requests in ten minutes", n)
	}
}

const makeUnknownKid = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im90aGVyIn0.e30.AAAA"

func TestNewKeysAreFound(t *testing.T) {
	old, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: suiteRSA().Public(), KeyID: "rsa-1", Algorithm: "RS256"}}})
	server := newKeyServer(t, serve(old))
	p := keySetSource(t, server.URL)
	if err := v1a(t, p, suiteNow); codeOf(err) != ichido.CodeSignature {
		t.Fatalf("got %v", err)
	}
	server.set(serve(suiteKeySet(t)))
	if err := v1a(t, p, suiteNow.Add(keySetRefresh-time.Second)); codeOf(err) != ichido.CodeSignature {
		t.Errorf("refreshed too early: %v", err)
	}
	if err := v1a(t, p, suiteNow.Add(keySetRefresh)); err != nil {
		t.Errorf("the new key is not found: %v", err)
	}
}

func TestPrivateKeysOfASetAreNotUsed(t *testing.T) {
	data, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: suiteEd, KeyID: "private"},
		{Key: suiteRSA().Public(), KeyID: "for encryption", Use: "enc"},
	}})
	if keys, err := parseKeySet(data); err == nil {
		t.Errorf("used %d keys", len(keys))
	}
}

// A key server that hangs holds up a request for a bounded time, whatever the
// client says.
func TestAKeyServerThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		p := dynamicSource(t, Config{KeySet: &KeySet{URL: "https://keys.example.com"}, HTTPClient: client})
		start := time.Now()
		if code := codeOf(v1a(t, p, suiteNow)); code != ichido.CodeUnavailable || time.Since(start) != keySetTimeout {
			t.Errorf("code %q after %v", code, time.Since(start))
		}
	})
}

func TestKeySetClients(t *testing.T) {
	mine := &http.Client{Transport: roundTripper(nil), Timeout: time.Hour}
	for name, c := range map[string]*Config{"default": {KeySet: &KeySet{}}, "given": {KeySet: &KeySet{}, HTTPClient: mine}} {
		cache, err := newKeyCache(c, "https://keys.example.com")
		if err != nil {
			t.Fatal(err)
		}
		if err := cache.client.CheckRedirect(nil, nil); err != http.ErrUseLastResponse || cache.client.Timeout == 0 {
			t.Errorf("%s: redirects: %v, timeout %v", name, err, cache.client.Timeout)
		}
	}
	if mine.CheckRedirect != nil {
		t.Error("the given client was changed")
	}
}

func TestPlainKeySetURLsAreOfThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"https://keys.example.com/jwks": true, "http://localhost:80/": true, "http://LOCALHOST/": true, "http://127.0.0.2/": true, "http://[::1]:1/": true,
		"http://keys.example.com/": false, "http://10.0.0.1/": false, "http://localhost.example.com/": false, "http://127.1/": false, "ftp://localhost/": false,
		"https://user:pass@keys.example.com/": false, "https:///x": false, "https://keys.example.com/#x": false, "": false,
	} {
		if err := checkKeySetURL(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestPinnedURLIsTheSenders(t *testing.T) {
	f, err := lookup("gemini")
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		return nil, errors.New("no network here")
	})}
	source, err := newSource(f, Config{KeySet: &KeySet{}, HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	if code := codeOf(v1a(t, source.Provider, suiteNow)); code != ichido.CodeUnavailable {
		t.Errorf("code is %q", code)
	}
	if asked != "https://generativelanguage.googleapis.com/.well-known/jwks.json" {
		t.Errorf("asked %s", asked)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
