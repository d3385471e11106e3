package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, its commit and the Go it was built with",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "ichido %s (commit %s, %s %s/%s)\n", v["version"], v["commit"], v["go"], runtime.GOOS, runtime.GOARCH)
			})
		},
	}
}

func buildVersion() map[string]string {
	v := map[string]string{"version": "unreleased", "commit": "unknown", "go": runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v["version"] = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v["commit"] = s.Value
		}
	}
	return v
}
