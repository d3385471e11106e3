package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// forbidden lists hosts of URLs that must not be reached, and the address that
// each of them is. An inert spelling is one that Go's own resolver does not
// look up; the system's resolver does.
var forbidden = [...]struct {
	host, addr string
	inert      bool
}{
	{"127.0.0.1", "127.0.0.1", false},
	{"127.1.2.3", "127.1.2.3", false},
	{"0.0.0.0", "0.0.0.0", false},
	{"0.1.2.3", "0.1.2.3", false},
	{"10.0.0.1", "10.0.0.1", false},
	{"10.255.255.255", "10.255.255.255", false},
	{"172.16.0.1", "172.16.0.1", false},
	{"172.31.255.254", "172.31.255.254", false},
	{"192.168.0.1", "192.168.0.1", false},
	{"169.254.0.1", "169.254.0.1", false},
	{"169.254.169.254", "169.254.169.254", false},
	{"169.254.170.2", "169.254.170.2", false},
	{"168.63.129.16", "168.63.129.16", false},
	{"100.64.0.1", "100.64.0.1", false},
	{"100.100.100.200", "100.100.100.200", false},
	{"100.127.255.254", "100.127.255.254", false},
	{"192.0.0.1", "192.0.0.1", false},
	{"192.0.0.192", "192.0.0.192", false},
	{"192.0.2.1", "192.0.2.1", false},
	{"192.88.99.1", "192.88.99.1", false},
	{"198.18.0.1", "198.18.0.1", false},
	{"198.19.255.255", "198.19.255.255", false},
	{"198.51.100.1", "198.51.100.1", false},
	{"203.0.113.1", "203.0.113.1", false},
	{"224.0.0.1", "224.0.0.1", false},
	{"239.255.255.255", "239.255.255.255", false},
	{"240.0.0.1", "240.0.0.1", false},
	{"255.255.255.255", "255.255.255.255", false},
	{"[::]", "::", false},
	{"[::1]", "::1", false},
	{"[::ffff:127.0.0.1]", "127.0.0.1", false},
	{"[::ffff:10.0.0.1]", "10.0.0.1", false},
	{"[::ffff:a9fe:a9fe]", "169.254.169.254", false},
	{"[::127.0.0.1]", "::127.0.0.1", false},
	{"[64:ff9b::7f00:1]", "64:ff9b::7f00:1", false},
	{"[64:ff9b::a9fe:a9fe]", "64:ff9b::a9fe:a9fe", false},
	{"[64:ff9b:1::1]", "64:ff9b:1::1", false},
	{"[2002:7f00:1::]", "2002:7f00:1::", false},
	{"[2002:a9fe:a9fe::1]", "2002:a9fe:a9fe::1", false},
	{"[2001:0:7f00:1::]", "2001:0:7f00:1::", false},
	{"[2001:db8::1]", "2001:db8::1", false},
	{"[3fff::1]", "3fff::1", false},
	{"[5f00::1]", "5f00::1", false},
	{"[100::1]", "100::1", false},
	{"[fe80::1]", "fe80::1", false},
	{"[fe80::1%25lo]", "fe80::1", false},
	{"[fec0::1]", "fec0::1", false},
	{"[fc00::1]", "fc00::1", false},
	{"[fd00:ec2::254]", "fd00:ec2::254", false},
	{"[fd20:ce::254]", "fd20:ce::254", false},
	{"[ff02::1]", "ff02::1", false},
	{"[ff0e::1]", "ff0e::1", false},
	// Spellings that some resolvers read as 127.0.0.1.
	{"localhost", "127.0.0.1", false},
	{"LOCALHOST", "127.0.0.1", false},
	{"localhost.", "127.0.0.1", false},
	{"127.0.0.1.", "127.0.0.1", true},
	{"127.1", "127.0.0.1", true},
	{"2130706433", "127.0.0.1", true},
	{"0x7f000001", "127.0.0.1", false},
	{"0x7f.1", "127.0.0.1", false},
	{"0177.0.0.1", "127.0.0.1", true},
	{"017700000001", "127.0.0.1", true},
	{"１２７.０.０.１", "127.0.0.1", false},
	{"127。0。0。1", "127.0.0.1", false},
}

// dials records the connections that a client was about to make, and keeps
// those to any address but home from being made: nothing leaves the machine.
type dials struct {
	home string
	mu   sync.Mutex
	seen []string // guarded by mu
}

var errRecorded = errors.New("recorded")

func (d *dials) connect(address string) error {
	if address == d.home {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, address)
	return errRecorded
}

func (d *dials) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen
	d.seen = nil
	return seen
}

// attempts runs the whole table, by each way, and returns for each row and
// way how many connections the client was about to make.
func attempts(t *testing.T, client func(*net.Resolver, *dials) *http.Client) map[string]int {
	t.Helper()
	redirector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer redirector.Close()
	record := &dials{home: redirector.Listener.Addr().String()}
	zone := &names{zone: map[string][]string{}}
	for i, row := range forbidden {
		zone.zone[fmt.Sprintf("row%d.test", i)] = []string{row.addr}
	}
	c := client(zone.resolver(), record)
	defer c.CloseIdleConnections()
	counts := map[string]int{}
	for i, row := range forbidden {
		for way, url := range map[string]string{
			"direct":   "http://" + row.host + ":8080/",
			"DNS":      fmt.Sprintf("http://row%d.test/", i),
			"redirect": redirector.URL + "/?to=http://" + strings.ReplaceAll(row.host, "%", "%25") + "/",
		} {
			if resp, err := c.Post(url, "application/json", strings.NewReader("{}")); err == nil {
				resp.Body.Close()
			}
			counts[way+" "+row.host] = len(record.take())
		}
	}
	return counts
}

func TestForbiddenAddressesAreNeverDialled(t *testing.T) {
	counts := attempts(t, func(r *net.Resolver, d *dials) *http.Client {
		c, err := NewClient(Options{Resolver: r, Allow: []string{"127.99.99.99"}, connect: d.connect})
		if err != nil {
			t.Fatal(err)
		}
		// Only the redirecting server is reached past the guard.
		guarded := c.Transport.(*http.Transport).DialContext
		c.Transport.(*http.Transport).DialContext = homeDialer(d.home, guarded)
		return c
	})
	if len(forbidden) < 40 || len(counts) != 3*len(forbidden) {
		t.Fatalf("the table has %d rows and %d results", len(forbidden), len(counts))
	}
	for row, n := range counts {
		if n != 0 {
			t.Errorf("%s: %d dials", row, n)
		}
	}
}

// The same table must catch a client without a guard, in every row: else the
// test above proves nothing.
func TestTheTableCatchesAnUnguardedClient(t *testing.T) {
	counts := attempts(t, func(r *net.Resolver, d *dials) *http.Client {
		dialer := net.Dialer{Resolver: r, Control: func(_, address string, _ syscall.RawConn) error {
			return d.connect(address)
		}}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = dialer.DialContext
		return &http.Client{Transport: transport, CheckRedirect: http.DefaultClient.CheckRedirect}
	})
	for _, row := range forbidden {
		for _, way := range []string{"direct", "DNS", "redirect"} {
			if n := counts[way+" "+row.host]; n == 0 && (way == "DNS" || !row.inert) {
				t.Errorf("%s %s: the default client was not caught", way, row.host)
			}
		}
	}
}

func TestANameThatChangesItsAddressGainsNothing(t *testing.T) {
	zone := &names{zone: map[string][]string{"rebind.test": {"8.8.8.8", "127.0.0.1"}}}
	record := &dials{}
	c, err := NewClient(Options{Resolver: zone.resolver(), connect: record.connect})
	if err != nil {
		t.Fatal(err)
	}
	req := mustRequest(t, "http://rebind.test/")
	if _, err := Exchange(c, req, 10); err == nil || errors.Is(err, ErrForbidden) {
		t.Fatalf("first look-up, public: %v", err)
	}
	if seen := record.take(); len(seen) != 1 || seen[0] != "8.8.8.8:80" {
		t.Fatalf("first look-up dialled %v", seen)
	}
	if _, err := Exchange(c, req, 10); !errors.Is(err, ErrForbidden) {
		t.Errorf("second look-up, loopback: %v", err)
	}
	if seen := record.take(); len(seen) != 0 {
		t.Errorf("second look-up dialled %v", seen)
	}
	if zone.asked < 2 {
		t.Fatalf("the name was looked up %d times", zone.asked)
	}
}

func TestAllowListAllowsWhatItNamesAndNoMore(t *testing.T) {
	for _, c := range []struct {
		allow, host, addr string
		want              bool
	}{
		{"127.0.0.1", "x.test", "127.0.0.1", true},
		{"127.0.0.1", "x.test", "127.0.0.2", false},
		{"[::1]", "x.test", "::1", true},
		{"10.1.0.0/16", "x.test", "10.1.255.1", true},
		{"10.1.0.0/16", "x.test", "10.2.0.1", false},
		{"::ffff:10.0.0.1", "x.test", "10.0.0.1", true},
		{"fd12:3456::/32", "x.test", "fd12:3456::1", true},
		{"App.Internal.", "app.internal", "10.0.0.1", true},
		{"app.internal", "APP.internal.", "fd00::1", true},
		{"app.internal", "app.internal", "127.0.0.1", true},
		{"app.internal", "app.internal", "8.8.8.8", true},
		{"app.internal", "other.internal", "10.0.0.1", false},
		{"app.internal", "app.internal", "169.254.169.254", false},
		{"app.internal", "app.internal", "fe80::1", false},
		{"app.internal", "app.internal", "0.0.0.0", false},
		{"app.internal", "app.internal", "224.0.0.1", false},
		{"app.internal", "app.internal", "100.100.100.200", false},
		{"app.internal", "app.internal", "fd00:ec2::254", false},
		{"100.64.0.0/10", "x.test", "100.64.0.1", true},
		{"100.64.0.0/10", "x.test", "100.100.100.200", false},
		{"100.100.100.200", "x.test", "100.100.100.200", true},
		{"100.100.100.200/32", "x.test", "100.100.100.200", true},
		{"fc00::/7", "x.test", "fd20:ce::254", false},
		{"169.254.0.0/16", "x.test", "169.254.169.254", false},
		{"169.254.169.254/31", "x.test", "169.254.169.254", false},
		{"168.0.0.0/8", "x.test", "168.63.129.16", false},
		{"fe80::/10", "x.test", "fe80::1", true},
		{"fe80::/10", "x.test", "fe80::1%lo", false},
		{"localhost", "8.8.8.8", "8.8.8.8", true},
	} {
		t.Run(c.allow+" "+c.host+" "+c.addr, func(t *testing.T) {
			g, err := newGuard([]string{c.allow})
			if err != nil {
				t.Fatal(err)
			}
			named := g.hosts[strings.TrimSuffix(strings.ToLower(c.host), ".")]
			if got := g.allowed(netip.MustParseAddr(c.addr), named); got != c.want {
				t.Errorf("allowed = %v, want %v", got, c.want)
			}
		})
	}
}

func TestAnAllowListEntryThatMeansNothingIsRefused(t *testing.T) {
	for _, entry := range []string{
		"", " ", "http://localhost", "localhost:3000", "10.0.0.1/8", "0.0.0.0/0", "10.0.0.0/7", "::/0", "fc00::/6",
		"10.0.0.0/33", "*.internal", "a..b", "fe80::1%lo", "::ffff:10.0.0.0/104", "a/b", strings.Repeat("a", 64) + ".test",
	} {
		if _, err := NewClient(Options{Allow: []string{entry}}); err == nil {
			t.Errorf("allow %q was accepted", entry)
		}
	}
}

func TestAGuardHoldsForEveryRangeOnItsEdges(t *testing.T) {
	g, err := newGuard(nil)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{
		"9.255.255.255": true, "11.0.0.0": true, "100.63.255.255": true, "100.128.0.0": true,
		"126.255.255.255": true, "128.0.0.0": true, "169.253.255.255": true, "169.255.0.0": true,
		"172.15.255.255": true, "172.32.0.0": true, "192.167.255.255": true, "192.169.0.0": true,
		"198.17.255.255": true, "198.20.0.0": true, "223.255.255.255": true, "1.1.1.1": true,
		"168.63.129.15": true, "168.63.129.17": true,
		"2606:4700::1": true, "2001:4860::8888": true, "1fff:ffff::1": false, "4000::1": false,
	} {
		if got := g.allowed(netip.MustParseAddr(addr), false); got != want {
			t.Errorf("allowed(%s) = %v, want %v", addr, got, want)
		}
	}
}

func TestHostsWrittenAsAddressesAreAllowed(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "10.1.2.3": true, "192.0.2.1": true, "::1": true, "fd00::1": true, "localhost": true, "LocalHost": true,
		"": false, "example.com": false, "localhost.": false, "app.localhost": false, "127.1": false, "[::1]": false, "10.0.0.0/8": false,
	} {
		allow := Literal(host)
		if (len(allow) == 1) != want {
			t.Errorf("Literal(%q) is %q", host, allow)
		}
		if _, err := newGuard(allow); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
}
