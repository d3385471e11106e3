package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"ichido.dev/ichido"
	"ichido.dev/ichido/confirm"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
	"ichido.dev/ichido/provider"
)

// endpoint is a source as the gateway serves it.
type endpoint struct {
	name       string
	path       string // without a slash at the end
	tokened    bool   // the path ends in a secret segment
	source     ichido.Source
	broken     bool // its provider could not be made, which is reported
	inbox      *ichido.Inbox
	keepBodies config.Keep
	keepKeys   config.Keep
}

// Check builds every source of a configuration without serving it, and
// records every problem in the file.
func Check(file *config.File, getenv func(string) (string, bool)) {
	for i, e := range build(file, &Options{Getenv: getenv}) {
		if e.broken {
			continue
		}
		if _, err := ichido.NewInbox(nowhere{}, e.source); err != nil {
			addJoined(file, fmt.Sprintf("sources[%d]", i), err)
		}
	}
}

// nowhere stands for the store where nothing is stored.
type nowhere struct{ ichido.Queue }

// builder turns one configured source into a source.
type builder struct {
	file   *config.File
	opts   *Options
	signer *outbound.Signer
	at     string // path of the source in the file
	in     *config.Source
	broken bool
	unread bool // a secret could not be resolved
}

// build makes the sources of a configuration. It records what is wrong in the
// file and leaves such sources out of nothing: positions stay the file's.
func build(file *config.File, opts *Options) []*endpoint {
	signer := signerOf(file, opts.Getenv)
	endpoints := make([]*endpoint, len(file.Sources))
	for i := range file.Sources {
		b := &builder{file: file, opts: opts, signer: signer, at: fmt.Sprintf("sources[%d]", i), in: &file.Sources[i]}
		endpoints[i] = b.endpoint()
	}
	return endpoints
}

func (b *builder) endpoint() *endpoint {
	e := &endpoint{
		name:       b.in.Name,
		path:       strings.TrimSuffix(b.in.Path, "/"),
		tokened:    b.in.PathToken.IsSet(),
		keepBodies: b.in.Retention.Bodies,
	}
	src := b.verifying()
	if e.tokened {
		src.PathTokens = []string{b.secret("path_token", b.in.PathToken.Ref)}
	}
	src.Allow = limiter(b.in.Rate)
	src.Encoding = b.in.Encoding
	b.handle(&src)
	b.confirm(&src)
	e.source, e.broken = src, b.broken
	e.keepKeys = b.keyRetention()
	return e
}

// verifying returns the source with its provider.
func (b *builder) verifying() ichido.Source {
	c := provider.Config{
		Name:                b.in.Name,
		Variants:            b.in.Variants,
		AllowedEvents:       b.in.AllowedEvents,
		AllowedRepositories: b.in.AllowedRepositories,
		Key:                 b.in.Key,
		Fingerprint:         b.in.Fingerprint,
		Settings:            b.in.Settings,
		AllowShortSecret:    b.in.AllowShortSecret,
		AcceptConflict:      policy(b.in.OnConflict),
		AcceptUnreadable:    policy(b.in.OnUnreadable),
		BodyLimit:           int64(b.in.BodyLimit),
		HTTPClient:          b.keyClient(),
	}
	if b.in.Tolerance != 0 {
		tolerance := time.Duration(b.in.Tolerance)
		c.Tolerance = &tolerance
	}
	for i, s := range b.in.Secrets {
		value := b.secret(fmt.Sprintf("secrets[%d]", i), s.Ref)
		c.Secrets = append(c.Secrets, provider.Secret{Value: value, NotBefore: s.NotBefore, NotAfter: s.NotAfter})
	}
	b.sharedSecret(&c)
	c.KeySet = b.keySet()
	if b.in.Provider == "" {
		b.broken = true // reported already
		return ichido.Source{}
	}
	src, err := provider.New(b.in.Provider, c)
	if err != nil {
		b.broken = true
		for _, e := range split(err) {
			if b.unread && strings.Contains(e.Error(), "secrets") {
				continue // said already
			}
			addJoined(b.file, b.at, e)
		}
	}
	return src
}

// sharedSecret adds the header and value of the shared-secret provider.
func (b *builder) sharedSecret(c *provider.Config) {
	shared := b.in.SharedSecret
	if !shared.Value.IsSet() {
		return
	}
	c.Secrets = append(c.Secrets, provider.Secret{Value: b.secret("shared_secret.value", shared.Value.Ref)})
	if shared.Header != "" {
		settings := map[string]string{"header": shared.Header}
		for name, value := range c.Settings {
			settings[name] = value
		}
		c.Settings = settings
	}
}

// keySet returns where the sender's public keys come from, nil for none.
func (b *builder) keySet() *provider.KeySet {
	switch path, isFile := strings.CutPrefix(b.in.Keys, "file:"); {
	case b.in.Keys == "":
		return nil
	case b.in.Keys == "published":
		return &provider.KeySet{}
	case isFile:
		data, err := os.ReadFile(path)
		if err != nil {
			b.file.Add(b.at+".keys", fmt.Sprintf("read key set: %v", err), "")
		}
		return &provider.KeySet{JSON: data}
	default:
		return &provider.KeySet{URL: b.in.Keys}
	}
}

// keyClient returns the client that fetches the key set: one that reaches
// public addresses, and the host that the operator wrote as an address.
func (b *builder) keyClient() *http.Client {
	if b.opts.HTTPClient != nil || b.in.Keys == "" {
		return b.opts.HTTPClient
	}
	client, err := outbound.NewClient(outbound.Options{Allow: literalHost(b.in.Keys)})
	if err != nil {
		b.file.Add(b.at+".keys", err.Error(), "")
	}
	return client
}

// secret resolves a reference, or records why it cannot.
func (b *builder) secret(setting string, ref config.Ref) string {
	value, err := ref.Resolve(b.opts.Getenv)
	if err != nil {
		b.unread, b.broken = true, true
		b.file.Add(b.at+"."+setting, err.Error(), "")
	}
	return value
}

// handle sets what is done with the source's events: forwarded where there is
// a destination, else kept as done, ignored.
func (b *builder) handle(src *ichido.Source) {
	d := &b.in.Deliver
	if d.To == "" {
		src.Handler = func(context.Context, *ichido.Event) error { return nil }
		src.Outcome = ichido.Ignored
		if b.isEnvironmentReceiver() {
			src.Handler, src.Keep = nil, true
		}
		return
	}
	handler, err := forward(d, eventHeaders(b.in.Provider), b.signer)
	if err != nil {
		b.file.Add(b.at+".deliver", err.Error(), "")
		return
	}
	src.Handler = handler
	src.Outcome = ichido.Forwarded
	src.HandlerTimeout = time.Duration(d.Timeout)
	src.Attempts = d.Attempts
	src.Concurrency = d.Concurrency
	for _, wait := range d.Backoff {
		src.Backoff = append(src.Backoff, time.Duration(wait))
	}
}

// isEnvironmentReceiver reports whether the source only trusts what an API
// confirms, and there is no API to ask: its events wait for a process that
// has one.
func (b *builder) isEnvironmentReceiver() bool {
	return b.in.Provider == "shared-secret" && b.in.Confirm.Gemini == nil && b.in.Confirm.HTTP == nil
}

// confirm sets the source's confirmation.
func (b *builder) confirm(src *ichido.Source) {
	src.ConfirmFor = time.Duration(b.in.Confirm.For)
	var err error
	switch c := b.in.Confirm; {
	case c.Gemini != nil && c.Gemini.APIKey.IsSet():
		key := b.secret("confirm.gemini.api_key", c.Gemini.APIKey.Ref)
		src.Confirm, err = confirm.Gemini(confirm.GeminiOptions{APIKey: key, BaseURL: c.Gemini.BaseURL})
	case c.HTTP != nil && c.HTTP.URL != "" && c.HTTP.Done != "":
		headers := map[string]string{}
		for name, secret := range c.HTTP.Headers {
			headers[name] = b.secret("confirm.http.headers."+name, secret.Ref)
		}
		src.Confirm, err = confirm.HTTP(confirm.HTTPOptions{
			URL: c.HTTP.URL, Headers: headers, Done: c.HTTP.Done, Refuted: c.HTTP.Refuted, Allow: c.HTTP.Allow,
		})
	}
	if err != nil {
		b.file.Add(b.at+".confirm", err.Error(), "")
	}
}

// keyRetention returns how long keys are kept: at least as long as the sender
// may resend, for ever by default where its scheme signs no time.
func (b *builder) keyRetention() config.Keep {
	keys := b.in.Retention.Keys
	profile, err := provider.Lookup(b.in.Provider)
	if err != nil {
		return keys
	}
	if keys == 0 {
		if !signsTime(profile) {
			return config.Forever
		}
		return config.Keep(config.DefaultRetention)
	}
	horizon := profile.Horizon
	if horizon == 0 {
		horizon = unknownHorizon
	}
	if keys != config.Forever && time.Duration(keys) < horizon {
		b.file.Add(b.at+".retention.keys", fmt.Sprintf("is shorter than the %d days in which %s may send an event again", days(horizon), b.in.Provider),
			"keep keys at least that long, or an old delivery becomes a second event")
	}
	return keys
}

// days returns a duration in days, rounded up.
func days(d time.Duration) int { return int((d + 24*time.Hour - 1) / (24 * time.Hour)) }

// unknownHorizon is how long a sender may send an event again where it does
// not say.
const unknownHorizon = 7 * 24 * time.Hour

// signsTime reports whether every variant that is on signs a time.
func signsTime(p *provider.Profile) bool {
	return !slices.ContainsFunc(p.Variants, func(v provider.Variant) bool { return !v.Off && !v.TimeSigned })
}

// eventHeaders returns the sender's headers that a destination may want: the
// type and the ids, which no signature need cover.
func eventHeaders(name string) []string {
	profile, err := provider.Lookup(name)
	if err != nil {
		return nil
	}
	headers := slices.Concat(profile.UnsignedIDs, profile.KeepHeaders)
	for _, v := range profile.Variants {
		for place := range strings.SplitSeq(v.TypeFrom, ", ") {
			if names, found := strings.CutPrefix(place, "header:"); found { // one name, or several of which the first that is there counts
				headers = append(headers, strings.Split(names, ",")...)
			}
		}
	}
	headers = slices.DeleteFunc(headers, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), "webhook-") })
	slices.Sort(headers)
	return slices.Compact(headers)
}

// policy returns what on_conflict or on_unreadable says, nil for the
// provider's own.
func policy(word string) *bool {
	if word == "" {
		return nil
	}
	accept := word == "accept"
	return &accept
}

// setting finds the name of a setting at the start of a problem's text.
var setting = regexp.MustCompile(`^(?:source "[^"]*": |provider \S+: )*([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)*)?:? ?(.*)$`)

// addJoined records each of several joined errors, at the setting it names.
func addJoined(file *config.File, at string, err error) {
	for _, e := range split(err) {
		addOne(file, at, e)
	}
}

// split returns the errors that were joined.
func split(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}

func addOne(file *config.File, at string, err error) {
	m := setting.FindStringSubmatch(err.Error())
	message, cure, _ := strings.Cut(err.Error(), ": ")
	if m != nil && file.Has(at+"."+m[1]) {
		at += "." + m[1]
		message, cure, _ = strings.Cut(m[2], ": ")
	}
	file.Add(at, message, cure)
}
