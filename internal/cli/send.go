package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/outbound"
	"ichido.dev/ichido/internal/view"
	"ichido.dev/ichido/provider"
)

// sendFlags say what to send.
type sendFlags struct {
	place
	to, secret, body, eventType, id, variant string
	age                                      time.Duration
	dry                                      bool
}

func (a *app) send() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send NAME",
		Short: "Sign a body as a provider would, and post it",
		Long: `Sign a body as a provider would, and post it.

NAME is a source of the configuration: then secret, path and address are taken
from there. Or it is a provider: then --to and --secret say where and with
what. The body is the provider's sample, unless --body names a file or "-".`,
		Example: `  ichido send inbox
  ichido send stripe --to http://127.0.0.1:8080/hooks/stripe --secret env:STRIPE_WEBHOOK_SECRET
  ichido send github --body push.json --type push
  ichido send inbox --age 10m        # stale: answered 401`,
		Args: oneArg("the name of a source or a provider", `"ichido check" lists the sources, "ichido check --providers" the providers`),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.sendable(&f.place), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSend(cmd.Context(), args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	flags.StringVar(&f.to, "to", "", "URL to post to")
	flags.StringVar(&f.secret, "secret", "", "secret or private key: env:NAME or file:PATH")
	flags.StringVar(&f.body, "body", "", `file with the body, "-" for standard input (default: the provider's sample)`)
	flags.StringVar(&f.eventType, "type", "", "event type, for providers with a header that carries it")
	flags.StringVar(&f.id, "id", "", "event id (default: a fresh one)")
	flags.StringVar(&f.variant, "variant", "", "variant of the provider's scheme")
	flags.DurationVar(&f.age, "age", 0, "sign for a time this long ago; negative for the future")
	flags.BoolVar(&f.dry, "dry-run", false, "print the request instead of sending it")
	return cmd
}

// parcel is a signed delivery, ready to be posted.
type parcel struct {
	provider string
	url      string
	sign     provider.SignConfig
	header   http.Header
	body     []byte
}

func (a *app) runSend(ctx context.Context, name string, f *sendFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	p, err := a.pack(name, f)
	if err != nil {
		return err
	}
	if f.dry {
		return a.printParcel(p)
	}
	return a.post(ctx, f, p)
}

// post sends a parcel and prints its answer.
func (a *app) post(ctx context.Context, f *sendFlags, p *parcel) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(p.body))
	if err != nil {
		return usage("--to takes a URL", "the URL cannot be used")
	}
	req.Header = p.header
	answer, err := outbound.Exchange(&http.Client{Timeout: 30 * time.Second}, req, 64<<10)
	if answer == nil {
		return &failure{exitError, fmt.Errorf("send: %w", err), f.unanswered(req.URL)}
	}
	body := strings.TrimSpace(string(answer.Body))
	err = a.print(map[string]any{"status": answer.Status, "body": body}, func(w io.Writer) {
		fmt.Fprintf(w, "%d %s\n", answer.Status, http.StatusText(answer.Status))
		if body != "" {
			fmt.Fprintln(w, view.Body(body))
		}
	})
	if err == nil && answer.Status/100 != 2 {
		return &failure{code: exitError, err: fmt.Errorf("the delivery was answered %d", answer.Status)}
	}
	return err
}

// check refuses what no header can hold, or what nobody would see in one.
func (f *sendFlags) check() error {
	for _, flag := range []struct{ name, value string }{{"--id", f.id}, {"--type", f.eventType}, {"--variant", f.variant}} {
		if safe := view.Line(flag.value); safe != flag.value {
			return usage("write it without control characters", "%s: %s has a character that does not print", flag.name, safe)
		}
	}
	return nil
}

// unanswered says what to look for where nothing answers.
func (f *sendFlags) unanswered(to *url.URL) string {
	if f.to != "" {
		return "--to says the address: is something listening there?"
	}
	return fmt.Sprintf(`the configuration says %s: "ichido serve" must be running, and a change of listen: takes a restart; --to names another address`, to.Host)
}

// resolveSecret reads what --secret refers to.
func (a *app) resolveSecret(ref string) (string, error) {
	if !strings.HasPrefix(ref, "env:") && !strings.HasPrefix(ref, "file:") {
		return "", usage("put it into a variable or a file: --secret env:NAME or --secret file:PATH", "--secret: takes a reference, not the secret itself")
	}
	secret, err := config.NewRef(ref).Resolve(a.env.LookupEnv)
	if err != nil {
		return "", usage("--secret env:NAME or --secret file:PATH", "--secret: %w", err)
	}
	return secret, nil
}

// neither says that a name is neither a source nor a provider, and what to do.
func neither(name string, sources []string, configured bool) error {
	first := !configured && name == "inbox" // the source that a first run makes
	if near := config.Nearest(name, append(sources, provider.Names()...)); near != "" && !first {
		return usage(fmt.Sprintf("did you mean %q?", near), "%q is neither a source nor a provider", name)
	}
	if !configured {
		return usage(`run "ichido serve" once: it writes `+defaultConfig+`, with a source "inbox"; or --config names one`,
			"%q is not a provider, and %w to name it as a source", name, errNoConfig)
	}
	return usage(`"ichido check" lists the sources, "ichido check --providers" the providers`, "%q is neither a source nor a provider", name)
}

// carries reports whether a request tells an event type: in a header, or
// somewhere in its body.
func (p *parcel) carries(eventType string) bool {
	for _, values := range p.header {
		if slices.Contains(values, eventType) {
			return true
		}
	}
	return bytes.Contains(p.body, []byte(eventType))
}

// pack makes the parcel for a source or a provider.
func (a *app) pack(name string, f *sendFlags) (*parcel, error) {
	p := &parcel{provider: name, url: f.to}
	p.sign = provider.SignConfig{Variant: f.variant, ID: f.id, Type: f.eventType, Time: time.Now().Add(-f.age)}
	file, err := a.load(&f.place)
	if err != nil && !errors.Is(err, errNoConfig) {
		return nil, err
	}
	var names []string
	configured := err == nil
	if configured {
		for i := range file.Sources {
			names = append(names, file.Sources[i].Name)
		}
		if i := slices.Index(names, name); i >= 0 {
			if err := a.fromSource(p, &file.Config, &file.Sources[i], f.secret == ""); err != nil {
				return nil, err
			}
		}
	}
	if f.secret != "" {
		if p.sign.Secret, err = a.resolveSecret(f.secret); err != nil {
			return nil, err
		}
	}
	profile, err := provider.Lookup(p.provider)
	if err != nil {
		return nil, neither(name, names, configured)
	}
	if p.url == "" {
		return nil, usage("--to http://127.0.0.1:8080/hooks/"+name, "where to?")
	}
	if p.sign.Secret == "" {
		return nil, usage("--secret env:NAME or file:PATH", "signed with what?")
	}
	if err := a.fill(p, profile, f.body); err != nil {
		return nil, err
	}
	if p.header, err = provider.Sign(p.provider, p.sign, p.body); err != nil {
		return nil, usage("", "sign: %w", err)
	}
	if f.eventType != "" && !p.carries(f.eventType) {
		return nil, usage("put the type into a body of your own, and name that with --body",
			"--type %q: provider %s has no header for it, and the body does not say it", f.eventType, p.provider)
	}
	if p.header.Get("Content-Type") == "" {
		p.header.Set("Content-Type", contentType(p.body))
	}
	return p, nil
}

// fromSource takes provider, address and, if it is wanted, the secret from the
// configuration.
func (a *app) fromSource(p *parcel, c *config.Config, s *config.Source, secret bool) error {
	p.provider = s.Provider
	p.sign.Settings = s.Settings
	ref := s.SharedSecret.Value.Ref
	if s.SharedSecret.Header != "" {
		p.sign.Settings = maps.Clone(s.Settings)
		if p.sign.Settings == nil {
			p.sign.Settings = map[string]string{}
		}
		p.sign.Settings["header"] = s.SharedSecret.Header
	}
	if len(s.Secrets) > 0 {
		ref = s.Secrets[0].Ref
	}
	if secret {
		var err error
		if p.sign.Secret, err = ref.Resolve(a.env.LookupEnv); err != nil {
			return usage("", "secret of source %s: %w", s.Name, err)
		}
	}
	if p.url != "" {
		return nil
	}
	path := s.Path
	if s.PathToken.IsSet() {
		token, err := s.PathToken.Ref.Resolve(a.env.LookupEnv)
		if err != nil {
			return usage("", "path token of source %s: %w", s.Name, err)
		}
		path = strings.TrimSuffix(path, "/") + "/" + token
	}
	p.url = (&url.URL{Scheme: "http", Host: reachable(c.Listen), Path: path}).String()
	return nil
}

// reachable returns an address at which this machine reaches a listener.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch addr, err := netip.ParseAddr(host); {
	case host == "", err == nil && addr == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && addr.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// fill sets the body: a file, standard input, or the provider's sample.
func (a *app) fill(p *parcel, profile *provider.Profile, from string) (err error) {
	if p.sign.ID == "" {
		p.sign.ID = "evt_" + randomHex(8)
	}
	switch from {
	case "":
		var sampleType string
		p.body, sampleType = profile.Sample(insideJSON(p.sign.ID), p.sign.Time)
		if p.sign.Type == "" {
			p.sign.Type = sampleType
		}
	case "-":
		p.body, err = io.ReadAll(a.env.Stdin)
	default:
		p.body, err = os.ReadFile(from)
	}
	if err != nil {
		return usage("", "read body: %w", err)
	}
	return nil
}

// insideJSON returns text as it stands in a JSON string, without the quotes.
func insideJSON(text string) string {
	quoted, _ := json.Marshal(text) // a string can always be written
	return string(quoted[1 : len(quoted)-1])
}

func (a *app) printParcel(p *parcel) error {
	return a.print(map[string]any{"headers": p.header, "body": string(p.body)}, func(w io.Writer) {
		printHeaders(w, p.header)
		fmt.Fprintf(w, "\n%s\n", view.Body(string(p.body)))
	})
}

// contentType returns the media type of a body by its first byte.
func contentType(body []byte) string {
	body = bytes.TrimLeft(body, " \t\r\n\ufeff")
	if len(body) > 0 && (body[0] == '{' || body[0] == '[') {
		return "application/json"
	}
	return "application/x-www-form-urlencoded"
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
