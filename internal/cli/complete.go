package cli

import (
	"github.com/spf13/cobra"

	"ichido.dev/ichido"
	"ichido.dev/ichido/provider"
)

// states returns the states that events can be filtered by.
func states() []string {
	return []string{
		string(ichido.Pending), string(ichido.Claimed), string(ichido.Done), string(ichido.Dead), string(ichido.Quarantined),
	}
}

// outcomes returns the outcomes that events can be filtered by.
func outcomes() []string {
	return []string{ichido.Applied, ichido.Forwarded, ichido.Refuted, ichido.Ignored, ichido.Split}
}

// complete offers values for a flag in the shell.
func complete(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

// sourceNames returns the names of the configured sources, as far as the
// configuration can be read.
func (a *app) sourceNames(p *place) (names []string) {
	file, _, err := a.find(p)
	if err != nil {
		return nil
	}
	for i := range file.Sources {
		names = append(names, file.Sources[i].Name)
	}
	return names
}

// sendable returns what `ichido send` can be told to send: the configured
// sources, and the providers.
func (a *app) sendable(p *place) []string {
	return append(a.sourceNames(p), provider.Names()...)
}
