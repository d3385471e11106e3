package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ichido.dev/ichido/internal/config"
)

// noArgs refuses arguments; those of a command with commands of its own are
// the name of one that there is not.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	help := fmt.Sprintf("%q says what it takes", cmd.CommandPath()+" --help")
	if !cmd.HasSubCommands() {
		return usage(help, "%s takes no arguments, and there is %q", called(cmd), args[0])
	}
	return noCommand(cmd, args[0])
}

// noCommand says that a command has no such command, and which was perhaps meant.
func noCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := fmt.Sprintf("%q lists the commands", cmd.CommandPath()+" --help")
	if near := config.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return usage(hint, "unknown command %q", strings.TrimSpace(called(cmd)+" "+name))
}

// called returns what a command is called after the program's name.
func called(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// oneArg demands one argument; what says what it is and where to find it.
func oneArg(what, where string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usage(where, "%s needs %s", called(cmd), what)
		case len(args) > 1:
			return usage(where, "%s takes %s, not %d arguments", called(cmd), what, len(args))
		}
		return nil
	}
}

// optionalArg demands one argument or none.
func optionalArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage(fmt.Sprintf("%q says more", cmd.CommandPath()+" --help"), "%s takes %s, not %d arguments", called(cmd), what, len(args))
		}
		return nil
	}
}

// oneOf refuses a value of a flag that is not one of those there are.
func oneOf(flag, value string, known []string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	hint := "one of " + strings.Join(known, ", ")
	return usage(hint, "there is no %s %q", flag, value)
}

// adopt makes the commands that cobra adds follow the rules of the others:
// what they do not know is wrong usage.
func adopt(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				at := root
				for _, name := range args {
					next, _, err := at.Find([]string{name})
					if err != nil || next == at {
						return noCommand(at, name)
					}
					at = next
				}
				return nil
			}
		case "completion":
			c.Args = noArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
