package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/gateway"
	"ichido.dev/ichido/provider"
)

func (a *app) check() *cobra.Command {
	var p place
	var providers bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration: every problem at once, with its place and its cure",
		Long: `Check a configuration: every problem at once, with its place and its cure.

It resolves the secrets and builds every source as "ichido serve" would, but
opens no store and no port. Secrets are never shown.`,
		Args: optionalArg("one file"),
		RunE: func(_ *cobra.Command, args []string) error {
			if providers {
				return a.listProviders()
			}
			if len(args) == 1 {
				p.config, p.named = args[0], "the argument"
			}
			file, path, err := a.find(&p)
			if errors.Is(err, errNoConfig) {
				return usage("name one, or run \"ichido serve\" once: it writes "+defaultConfig, "%w", err)
			}
			if err != nil {
				return err
			}
			gateway.Check(file, a.env.LookupEnv, gateway.SecretsHere)
			return a.report(file, path)
		},
	}
	cmd.Flags().StringVarP(&p.config, "config", "c", "", "configuration file (default "+defaultConfig+")")
	cmd.Flags().BoolVar(&providers, "providers", false, "list the providers instead")
	return cmd
}

// report prints what is wrong, or what the configuration says.
func (a *app) report(file *config.File, path string) error {
	if path == "" {
		path = "the environment"
	}
	warnings := file.Warnings()
	if warnings == nil {
		warnings = []string{}
	}
	if !a.json {
		for _, text := range warnings {
			fmt.Fprintf(a.stderr, "warning: %s: %s\n", path, text)
		}
	}
	var problems config.Problems
	if err := file.Problems(); !errors.As(err, &problems) {
		type source struct {
			Name     string `json:"name"`
			Provider string `json:"provider"`
			Path     string `json:"path"`
		}
		sources := []source{}
		for _, s := range file.Sources {
			sources = append(sources, source{s.Name, s.Provider, s.Route()})
		}
		return a.print(map[string]any{"ok": true, "file": path, "sources": sources, "problems": []any{}, "warnings": warnings}, func(w io.Writer) {
			fmt.Fprintf(w, "%s is good: %d source(s)\n", path, len(sources))
			for _, s := range sources {
				fmt.Fprintf(w, "  %s (%s) at %s\n", s.Name, s.Provider, s.Path)
			}
		})
	}
	err := a.print(map[string]any{"ok": false, "file": path, "problems": problems, "warnings": warnings}, func(w io.Writer) {
		for _, p := range problems {
			printProblem(w, path, p)
		}
	})
	if err != nil {
		return err
	}
	return usage("", "%s has %d problem(s)", path, len(problems))
}

func printProblem(w io.Writer, path string, p config.Problem) {
	where := path
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", path, p.Line, p.Column)
	}
	fmt.Fprintf(w, "%s: ", where)
	if p.Path != "" {
		fmt.Fprintf(w, "%s: ", p.Path)
	}
	fmt.Fprintln(w, p.Message)
	if p.Excerpt != "" {
		fmt.Fprintln(w, p.Excerpt)
	}
	if p.Cure != "" {
		fmt.Fprintf(w, "      = %s\n", p.Cure)
	}
	fmt.Fprintln(w)
}

func (a *app) listProviders() error {
	type row struct {
		Name     string        `json:"name"`
		Title    string        `json:"title"`
		Strength string        `json:"strength"`
		Scheme   string        `json:"scheme"`
		Horizon  time.Duration `json:"-"`
		Docs     string        `json:"docs"`
	}
	rows := []row{}
	for _, name := range provider.Names() {
		p, err := provider.Lookup(name)
		if err != nil {
			return err
		}
		var strengths []string
		for _, v := range p.Variants {
			if !v.Off && !strings.Contains(strings.Join(strengths, ","), v.Strength) {
				strengths = append(strengths, v.Strength)
			}
		}
		rows = append(rows, row{name, p.Name, strings.Join(strengths, ","), p.Scheme, p.Horizon, p.Docs})
	}
	return a.print(map[string]any{"providers": rows}, func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tSENDER\tPROVES\tSCHEME")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Name, r.Title, r.Strength, r.Scheme)
		}
		t.Flush()
	})
}
