package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
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
	route      string // as it is shown
	tokened    bool   // the path ends in a secret segment
	source     ichido.Source
	broken     bool // its provider could not be made, which is reported
	inbox      *ichido.Inbox
	keepBodies config.Keep
	keepKeys   config.Keep
}

// Secrets says whether a configuration's references to secrets and key files
// must resolve in this process.
type Secrets bool

// Where the secrets of a configuration are.
const (
	SecretsHere      Secrets = true
	SecretsElsewhere Secrets = false // in the environment of the server only, perhaps
)

// Check builds every source of a configuration without serving it, and
// records every problem in the file.
func Check(file *config.File, getenv func(string) (string, bool), secrets Secrets) {
	for i, e := range build(file, &Options{Getenv: getenv}, secrets) {
		e.open(file, i, nowhere{}, e.source)
	}
}

// open makes the inbox of the endpoint from src, or records why there is none.
// Of a source whose provider could not be made, which is recorded already, it
// records what else is wrong.
func (e *endpoint) open(file *config.File, i int, q ichido.Queue, src ichido.Source) {
	inbox, err := ichido.NewInbox(q, src)
	if err != nil {
		addJoined(file, fmt.Sprintf("sources[%d]", i), err)
		return
	}
	if !e.broken {
		e.inbox = inbox
	}
}

// nowhere stands for the store where nothing is stored.
type nowhere struct{ ichido.Queue }

// unknown stands for a provider that could not be made: it verifies nothing.
type unknown struct{}

// Verify implements [ichido.Provider].
func (unknown) Verify(*ichido.Delivery) (ichido.Proof, error) {
	return ichido.Proof{}, &ichido.Error{Code: ichido.CodeSignature, Op: "verify", Cause: "no provider"}
}

// builder turns one configured source into a source.
type builder struct {
	file   *config.File
	opts   *Options
	signer *outbound.Signer
	here   Secrets
	at     string // path of the source in the file
	in     *config.Source
	broken bool
	unread map[string]bool // settings whose secret could not be resolved
}

// build makes the sources of a configuration. It records what is wrong in the
// file and leaves such sources out of nothing: positions stay the file's.
func build(file *config.File, opts *Options, here Secrets) []*endpoint {
	signer := signerOf(file, opts.Getenv, here)
	endpoints := make([]*endpoint, len(file.Sources))
	for i := range file.Sources {
		b := &builder{
			file: file, opts: opts, signer: signer, here: here,
			at: fmt.Sprintf("sources[%d]", i), in: &file.Sources[i], unread: map[string]bool{},
		}
		endpoints[i] = b.endpoint()
	}
	return endpoints
}

func (b *builder) endpoint() *endpoint {
	e := &endpoint{
		name:       b.in.Name,
		path:       strings.TrimSuffix(b.in.Path, "/"),
		route:      b.in.Route(),
		tokened:    b.in.PathToken.IsSet(),
		keepBodies: b.in.Retention.Bodies,
	}
	src := b.verifying()
	if e.tokened {
		if token, found := b.secret("path_token", b.in.PathToken.Ref); found {
			src.PathTokens = []string{token}
		}
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
		value, _ := b.secret(fmt.Sprintf("secrets[%d]", i), s.Ref)
		c.Secrets = append(c.Secrets, provider.Secret{Value: value, NotBefore: s.NotBefore, NotAfter: s.NotAfter})
	}
	b.sharedSecret(&c)
	c.KeySet = b.keySet()
	name := b.in.Provider
	known := b.providerIsKnown()
	if !known {
		name = anyProvider
	}
	src, err := provider.New(name, c)
	for _, e := range split(err) {
		b.problem(e, known)
	}
	if err != nil || !known {
		b.broken = true
		src = ichido.Source{Name: cmp.Or(b.in.Name, "unnamed"), Provider: unknown{}}
	}
	return src
}

// anyProvider is the profile that says what is wrong with secrets where it is
// not known whose they are: it takes any text.
const anyProvider = "hmac"

// providerIsKnown reports whether there is such a provider, or records that
// there is none. That one is missing was recorded already.
func (b *builder) providerIsKnown() bool {
	names := provider.Names()
	if b.in.Provider == "" || slices.Contains(names, b.in.Provider) {
		return b.in.Provider != ""
	}
	cure := "use one of " + strings.Join(names, ", ")
	if near := config.Nearest(b.in.Provider, names); near != "" {
		cure = fmt.Sprintf("did you mean %q?", near)
	}
	b.file.Add(b.at+".provider", fmt.Sprintf("there is no provider %q", b.in.Provider), cure)
	return false
}

// sharedSecret adds the header and value of the shared-secret provider.
func (b *builder) sharedSecret(c *provider.Config) {
	shared := b.in.SharedSecret
	if !shared.Value.IsSet() {
		return
	}
	value, _ := b.secret("shared_secret.value", shared.Value.Ref)
	c.Secrets = append(c.Secrets, provider.Secret{Value: value})
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
			b.missing("keys", errors.New("the file with the key set cannot be read; correct the path, which is relative to the working directory"))
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
		b.file.Add(b.at+".keys", err.Error(), "write published, file:PATH of a JWKS, or an https URL")
	}
	return client
}

// secret resolves a reference, or records why it cannot.
func (b *builder) secret(setting string, ref config.Ref) (value string, found bool) {
	value, err := ref.Resolve(b.opts.Getenv)
	if err != nil {
		b.missing(setting, err)
		return "", false
	}
	return value, true
}

// missing records that a reference cannot be resolved, where it must be.
func (b *builder) missing(setting string, err error) {
	b.unread[setting], b.broken = true, true
	if b.here == SecretsHere {
		message, cure, _ := strings.Cut(err.Error(), "; ")
		b.file.Add(b.at+"."+setting, message, cure)
	}
}

// handle sets what is done with the source's events: forwarded where there is
// a destination, else kept as done, ignored.
func (b *builder) handle(src *ichido.Source) {
	d := &b.in.Deliver
	src.Handler = func(context.Context, *ichido.Event) error { return nil }
	if d.To == "" {
		src.Outcome = ichido.Ignored
		if b.isEnvironmentReceiver() {
			src.Handler, src.Keep = nil, true
		}
		return
	}
	handler, err := forward(b.in.Name, d, eventHeaders(b.in.Provider), b.signer, b.opts.Log)
	if err != nil {
		b.undeliverable(err)
		return
	}
	src.Handler = handler
	src.Outcome = ichido.Forwarded
	src.HandlerTimeout = time.Duration(d.Timeout)
	src.Attempts = d.Attempts
	src.Concurrency = d.Concurrency
	src.Backoff = waits(d.Backoff)
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
		key, found := b.secret("confirm.gemini.api_key", c.Gemini.APIKey.Ref)
		if found {
			src.Confirm, err = confirm.Gemini(confirm.GeminiOptions{APIKey: key, BaseURL: c.Gemini.BaseURL})
		}
	case c.HTTP != nil && c.HTTP.URL != "" && c.HTTP.Done != "":
		headers, found := b.confirmHeaders(c.HTTP.Headers)
		if found {
			src.Confirm, err = confirm.HTTP(confirm.HTTPOptions{
				URL: c.HTTP.URL, Headers: headers, Done: c.HTTP.Done, Refuted: c.HTTP.Refuted, Allow: c.HTTP.Allow,
			})
		}
	}
	if err == nil {
		return
	}
	for _, e := range split(err) {
		if at := b.at + ".confirm"; !b.file.Faulty(at) {
			message, _, _ := strings.Cut(e.Error(), "\n") // of an expression, a drawing follows
			b.file.Add(at, message, "correct it; docs/configuration.md has an example")
		}
	}
}

// confirmHeaders resolves the headers of a confirmation, all of them or not.
func (b *builder) confirmHeaders(list map[string]config.Secret) (headers map[string]string, all bool) {
	headers, all = map[string]string{}, true
	for name, secret := range list {
		value, found := b.secret("confirm.http.headers."+name, secret.Ref)
		headers[name], all = value, all && found
	}
	return headers, all
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
