package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// reservedPaths are answered by the gateway itself.
var reservedPaths = map[string]bool{"/livez": true, "/readyz": true}

// validate records what is wrong with the settings among themselves. complete
// is false when the file was not read to its end, so that nothing is said to
// be missing that may be there.
func (f *File) validate(complete bool) {
	f.address("listen", f.Listen)
	f.address("admin.listen", f.Admin.Listen)
	if f.Listen == f.Admin.Listen && !strings.HasSuffix(f.Listen, ":0") {
		f.Add("admin.listen", "is the same address as listen", "give the admin listener a port of its own")
	}
	for i, token := range f.Admin.Tokens {
		digest, found := strings.CutPrefix(token, "sha256:")
		if raw, err := hex.DecodeString(digest); !found || err != nil || len(raw) != 32 {
			f.Add(fmt.Sprintf("admin.tokens[%d]", i), "is not the hash of a token", `run "ichido token" and paste its sha256: line`)
		}
	}
	switch path, found := strings.CutPrefix(f.Store, "sqlite:"); {
	case !found || path == "":
		f.Add("store", "is not a store", "write sqlite:PATH")
	case strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:"):
		f.Add("store", "is not on disk", "write sqlite:PATH, for example sqlite:inbox.db")
	}
	if complete && len(f.Sources) == 0 {
		f.Add("sources", "there are no sources", "add at least one")
	}
	names, paths := map[string]int{}, map[string]int{}
	for i := range f.Sources {
		at, s := fmt.Sprintf("sources[%d]", i), &f.Sources[i]
		f.source(at, s)
		twice := s.Name != "" && !f.unique(names, i, "name", s.Name)
		if s.Name != "" && !twice || f.Has(at+".path") {
			f.unique(paths, i, "path", strings.TrimSuffix(s.Path, "/")) // both forms are served
		}
	}
}

// unique records a setting that two sources share, and reports whether it is
// the first one's.
func (f *File) unique(seen map[string]int, i int, setting, value string) bool {
	if first, taken := seen[value]; taken {
		f.Add(fmt.Sprintf("sources[%d].%s", i, setting),
			fmt.Sprintf("is the same as that of sources[%d]", first), "give each source its own")
		return false
	}
	seen[value] = i
	return true
}

// source records what is wrong with one source.
func (f *File) source(at string, s *Source) {
	if s.Name == "" && !f.Faulty(at+".name") {
		f.Add(at, "the source has no name", "add name:")
	}
	if s.Provider == "" && !f.Faulty(at+".provider") {
		f.Add(at, "the source has no provider", "add provider:")
	}
	f.path(at, s)
	for _, choice := range []struct{ name, value string }{{"on_conflict", s.OnConflict}, {"on_unreadable", s.OnUnreadable}} {
		if choice.value != "" && choice.value != "accept" && choice.value != "reject" {
			f.Add(at+"."+choice.name, "is neither accept nor reject", "write accept or reject")
		}
	}
	if s.Encoding != "" && s.Encoding != "wire" && s.Encoding != "decoded" {
		f.Add(at+".encoding", "is neither wire nor decoded", "write wire (the signature covers the encoded bytes) or decoded")
	}
	for i, secret := range s.Secrets {
		if !secret.NotAfter.IsZero() && !secret.NotBefore.Before(secret.NotAfter) {
			f.Add(fmt.Sprintf("%s.secrets[%d].not_after", at, i), "is not later than not_before", "correct the times")
		}
	}
	f.deliver(at+".deliver", &s.Deliver)
	f.confirm(at+".confirm", &s.Confirm)
}

// path records a path that a request would never match, or that some senders
// write in another way: they differ in what they escape, and take out empty
// and dotted segments.
func (f *File) path(at string, s *Source) {
	if !f.Has(at+".path") && strings.IndexFunc(s.Name, oddInPath) >= 0 {
		return // the name is at fault, which is said there
	}
	at += ".path"
	segments := strings.Split(strings.TrimSuffix(s.Path, "/"), "/")
	odd := strings.IndexFunc(s.Path, func(r rune) bool { return r != '/' && oddInPath(r) })
	switch {
	case !strings.HasPrefix(s.Path, "/"):
		f.Add(at, "is not a path", "begin it with a slash, for example /hooks/stripe")
	case odd >= 0:
		r, _ := utf8.DecodeRuneInString(s.Path[odd:])
		f.Add(at, fmt.Sprintf("holds %q, which senders may write in another way", r), "use letters, digits, and - . _ ~")
	case slices.Contains(segments[1:], ""), slices.Contains(segments, "."), slices.Contains(segments, ".."):
		f.Add(at, `holds an empty segment, "." or "..", which senders take out`, "write the path without it")
	case reservedPaths[strings.TrimSuffix(s.Path, "/")]:
		f.Add(at, "is used by the gateway itself", "choose another path")
	}
}

// oddInPath reports whether a character is not one that is never escaped.
func oddInPath(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-._~", r)
}

func (f *File) deliver(at string, d *Deliver) {
	if d.To != "" {
		f.webURL(at+".to", d.To)
	} else if f.Has(at) && !f.Faulty(at) {
		f.Add(at, "has no destination", "add to:")
	}
	f.networks(at+".allow", d.Allow)
	if d.Timeout > Duration(10*time.Minute) {
		f.Add(at+".timeout", "is longer than ten minutes", "answer the forward at once and work later")
	}
}

func (f *File) confirm(at string, c *Confirm) {
	if c.Gemini != nil && c.HTTP != nil {
		f.Add(at, "names two APIs", "keep one of gemini and http")
	}
	if c.Gemini == nil && c.HTTP == nil && f.Has(at) && !f.Faulty(at) {
		f.Add(at, "names no API", "add gemini: or http:")
	}
	if g := c.Gemini; g != nil {
		if !g.APIKey.IsSet() && !f.Faulty(at+".gemini.api_key") {
			f.Add(at+".gemini", "has no API key", "add api_key: env:GEMINI_API_KEY")
		}
		if g.BaseURL != "" {
			f.webURL(at+".gemini.base_url", g.BaseURL)
		}
	}
	if h := c.HTTP; h != nil {
		if h.URL == "" && !f.Faulty(at+".http.url") {
			f.Add(at+".http", "has no URL", "add url:")
		}
		if h.Done == "" && !f.Faulty(at+".http.done") {
			f.Add(at+".http", "does not say when an event is true", "add done: with an expression, for example body.status == \"paid\"")
		}
		f.networks(at+".http.allow", h.Allow)
	}
}

// webURL records a URL that cannot be called.
func (f *File) webURL(at, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		f.Add(at, "is not an http or https URL", "write for example https://app.example.com/webhooks")
	case u.User != nil:
		f.Add(at, "holds a user name or password", "remove it from the URL")
	case u.Fragment != "":
		f.Add(at, "holds a fragment", "remove the part from # on")
	}
}

func (f *File) networks(at string, list []string) {
	for i, network := range list {
		if _, err := netip.ParsePrefix(network); err != nil {
			f.Add(fmt.Sprintf("%s[%d]", at, i), "is not a network", "write for example 10.0.0.0/8")
		}
	}
}

func (f *File) address(at, address string) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" || strings.ContainsAny(host, " /@") {
		f.Add(at, "is not an address", "write HOST:PORT with a port from 0 to 65535, for example 127.0.0.1:8080")
	}
}
