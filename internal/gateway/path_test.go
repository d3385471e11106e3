package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// raw sends a request as it is written, which net/http would not, and returns
// its answer.
func raw(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s\r\nHost: x\r\nConnection: close\r\n\r\n", strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// TestOnlyProbesSeeSuccessOutsideOfEndpoints: a sender with a wrong URL must
// not take anything for an acknowledgement.
func TestOnlyProbesSeeSuccessOutsideOfEndpoints(t *testing.T) {
	r := start(t, yaml(githubSource))
	for _, line := range []string{"GET /livez", "HEAD /livez", "GET /readyz", "HEAD /readyz", "GET http://x/livez"} {
		if res, _ := raw(t, r.IngestAddr(), line+" HTTP/1.1"); res.StatusCode != 200 {
			t.Errorf("%s answered %d", line, res.StatusCode)
		}
	}
	_, unknown := raw(t, r.IngestAddr(), "POST /nowhere HTTP/1.1")
	if !strings.Contains(unknown, `"code":"not_found"`) {
		t.Fatalf("an unknown path answered %q", unknown)
	}
	var lines []string
	for _, path := range []string{"/livez", "/readyz"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get"} {
			lines = append(lines, method+" "+path)
		}
		escaped := "/%" + fmt.Sprintf("%x", path[1]) + path[2:]
		for _, other := range []string{escaped, path + "/", "/" + path, "/." + path, "/x/.." + path, strings.ToUpper(path), path + "%20", path + ";x"} {
			lines = append(lines, "GET "+other, "POST "+other)
		}
	}
	lines = append(lines, "OPTIONS *", "GET *", "POST /", "GET /", "POST /metrics", "GET /metrics", "GET /v1/stats", "CONNECT x:80", "POST http://x")
	for _, line := range lines {
		if res, body := raw(t, r.IngestAddr(), line+" HTTP/1.1"); res.StatusCode != 404 || body != unknown {
			t.Errorf("%s answered %d %q", line, res.StatusCode, body)
		}
	}
	if res, body := raw(t, r.IngestAddr(), "GET /livez HTTP/1.1\nContent-Length: 0"); res.StatusCode != 200 {
		t.Errorf("a probe that says it has no body was answered %d %q", res.StatusCode, body)
	}
	if res, body := raw(t, r.IngestAddr(), "GET /livez HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n0"); res.StatusCode != 404 || body != unknown {
		t.Errorf("a GET with a body answered %d %q", res.StatusCode, body)
	}
}

// TestAdminKnowsOneSpellingAndNeverRedirects: what is not a route needs a token
// as well, and gets no answer that could be followed.
func TestAdminKnowsOneSpellingAndNeverRedirects(t *testing.T) {
	r := start(t, yaml(githubSource))
	token := "\nAuthorization: Bearer " + adminToken
	for _, line := range []string{
		"GET //v1/events", "GET /v1//events", "GET /v1/events/", "GET /v1/./events", "GET /v1/x/../events", "GET /%761/events", "GET /V1/events",
		"GET /v1/events/ev_%30", "GET /v1/events/x/y", "POST /v1/events", "GET /v1/replay", "DELETE /v1/events/ev_1", "OPTIONS /v1/events",
		"OPTIONS *", "GET *", "GET /", "GET http://x", "GET /v1", "CONNECT x:80", "GET /nowhere", "GET //livez", "GET /%6civez", "POST /livez",
		"GET /metrics/", "PUT /metrics",
	} {
		if res, body := raw(t, r.AdminAddr(), line+" HTTP/1.1"); res.StatusCode != 401 || res.Header.Get("Location") != "" {
			t.Errorf("without a token %s answered %d %v %q", line, res.StatusCode, res.Header, body)
		}
		if res, body := raw(t, r.AdminAddr(), line+" HTTP/1.1"+token); res.StatusCode != 404 || !strings.Contains(body, `"code":"not_found"`) || res.Header.Get("Location") != "" {
			t.Errorf("%s answered %d %v %q", line, res.StatusCode, res.Header, body)
		}
	}
	for _, line := range []string{"GET /livez", "HEAD /readyz", "GET /metrics"} {
		if res, _ := raw(t, r.AdminAddr(), line+" HTTP/1.1"); res.StatusCode != 200 {
			t.Errorf("%s answered %d", line, res.StatusCode)
		}
	}
	for _, line := range []string{"GET /v1/events", "HEAD /v1/events", "GET /v1/stats"} {
		if res, body := raw(t, r.AdminAddr(), line+" HTTP/1.1"+token); res.StatusCode != 200 {
			t.Errorf("%s answered %d %q", line, res.StatusCode, body)
		}
	}
}
