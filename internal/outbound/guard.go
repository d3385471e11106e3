package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
	"ichido.dev/ichido/internal/loopback"
)

// ErrForbidden is wrapped by the error of a request to an address that is
// neither public nor allowed. Nothing was sent.
var ErrForbidden = errors.New("the address is not public, and not in the allow list")

// metadata lists addresses at which clouds hand out credentials. Some are
// inside ranges that people allow for other reasons (100.64.0.0/10, fc00::/7),
// and Azure's is a public address: so a range never allows them.
var metadata = [...]string{
	"169.254.169.254", // most clouds
	"169.254.170.2",   // AWS containers
	"169.254.170.23",  // AWS pods
	"168.63.129.16",   // Azure
	"100.100.100.200", // Alibaba
	"192.0.0.192",     // Oracle
	"fd00:ec2::254",   // AWS
	"fd00:ec2::23",    // AWS pods
	"fd20:ce::254",    // Google
}

// private lists what an allowed host name may resolve to.
var private = [...]string{
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
	"::1/128", "fc00::/7",
}

// guard decides which addresses may be connected to. It is immutable.
type guard struct {
	public   *ssrf.Guardian
	hosts    map[string]bool         // allowed names, lower case
	prefixes []netip.Prefix          // allowed prefixes
	private  []netip.Prefix          // what allowed names may resolve to
	secret   map[netip.Addr]bool     // metadata services that are not allowed
	dialer   net.Dialer              // copied for each connection
	connect  func(addr string) error // of tests
}

func newGuard(allow []string) (*guard, error) {
	g := &guard{
		public: ssrf.New(),
		hosts:  map[string]bool{},
		secret: map[netip.Addr]bool{},
	}
	for _, text := range private {
		g.private = append(g.private, netip.MustParsePrefix(text))
	}
	for _, text := range metadata {
		g.secret[netip.MustParseAddr(text)] = true
	}
	var errs []error
	for _, entry := range allow {
		if err := g.allow(entry); err != nil {
			errs = append(errs, fmt.Errorf("allow %q: %w", entry, err))
		}
	}
	return g, errors.Join(errs...)
}

// allow adds one entry of the allow list.
func (g *guard) allow(entry string) error {
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		if addr.Zone() != "" {
			return errors.New("an address with a zone cannot be allowed")
		}
		addr = addr.Unmap()
		g.prefixes = append(g.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
		delete(g.secret, addr)
		return nil
	}
	if strings.Contains(entry, "/") {
		return g.allowPrefix(entry)
	}
	name := strings.TrimSuffix(strings.ToLower(entry), ".")
	if !validHost(name) {
		return errors.New(`write a prefix ("10.0.0.0/8"), an address or a host name, without scheme and port`)
	}
	g.hosts[name] = true
	return nil
}

func (g *guard) allowPrefix(entry string) error {
	prefix, err := netip.ParsePrefix(entry)
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return fmt.Errorf(`not a prefix such as "10.0.0.0/8"`)
	}
	widest := 8
	if prefix.Addr().Is6() {
		widest = 7
	}
	if prefix.Bits() < widest {
		return fmt.Errorf("too wide: at least /%d", widest)
	}
	g.prefixes = append(g.prefixes, prefix)
	if prefix.IsSingleIP() {
		delete(g.secret, prefix.Addr())
	}
	return nil
}

// Literal returns what [Options].Allow needs for a host, without a port and
// without brackets, that is written as an address or as localhost: whoever
// wrote that has said what he wants. It returns nil for every other name.
func Literal(host string) []string {
	if _, err := netip.ParseAddr(host); err == nil || loopback.Is(host) {
		return []string{host}
	}
	return nil
}

func validHost(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// dial connects to host:port. Each address that the host has is checked at
// the moment it is tried.
func (g *guard) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, errors.New("no host and port to connect to")
	}
	named := g.hosts[strings.TrimSuffix(strings.ToLower(host), ".")]
	d := g.dialer
	d.Control = func(network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return ErrForbidden
		}
		to, err := netip.ParseAddrPort(address)
		if err != nil || !g.allowed(to.Addr().Unmap(), named) {
			return ErrForbidden
		}
		if g.connect != nil {
			return g.connect(address)
		}
		return nil
	}
	return d.DialContext(ctx, network, hostport)
}

// allowed reports whether addr may be connected to; named says that the host
// name it was found for is in the allow list.
func (g *guard) allowed(addr netip.Addr, named bool) bool {
	if g.secret[addr] {
		return false
	}
	if contains(g.prefixes, addr) || named && contains(g.private, addr) {
		return true
	}
	return g.public.SafeAddr(addr) == nil
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
