// Package loopback says which hosts are this machine by the way they are
// written: the one rule for where plain http may be used.
//
// It looks nothing up, and it decides about no connection: what a name
// resolves to is guarded where the connection is made.
package loopback

import (
	"net/netip"
	"strings"
)

// Is reports whether host, without a port and without brackets, is a loopback
// address (127.0.0.0/8, ::1) or localhost. Other names are not, whatever they
// resolve to; nor are addresses with a zone, or in a short form such as 127.1.
func Is(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}
