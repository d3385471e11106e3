package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"ichido.dev/ichido/internal/view"
)

// output is standard output or standard error, for everything but bytes that
// were asked for as they are: what is written to it prints, and controls no
// terminal. It takes whole runes.
type output struct {
	to   io.Writer
	json *bool // whether JSON is written
	err  error // the first one
}

func (o *output) Write(p []byte) (int, error) {
	form := view.Text
	if *o.json {
		form = view.JSON
	}
	if _, err := io.WriteString(o.to, form(string(p))); err != nil {
		o.err = cmp.Or(o.err, err)
		return 0, err
	}
	return len(p), nil
}

// print writes v as JSON when it was asked for, else calls text. Errors of
// what text writes need no handling there.
func (a *app) print(v any, text func(w io.Writer)) error {
	if !a.json {
		text(a.stdout)
		return a.stdout.err
	}
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// tell writes an error or a note to standard error: as lines, or as one line
// of JSON when it was asked for. f, which may be nil, gives the hint and the
// exit code. Where that cannot be written there is nowhere else to say it.
func (a *app) tell(prefix, member, text string, f *failure) {
	if a.json {
		v := map[string]any{member: text}
		if f != nil {
			v["hint"], v["code"] = f.hint, f.code
		}
		e := json.NewEncoder(a.stderr)
		e.SetEscapeHTML(false)
		_ = e.Encode(v)
		return
	}
	fmt.Fprintf(a.stderr, "%s: %s\n", prefix, text)
	if f != nil && f.hint != "" {
		fmt.Fprintf(a.stderr, "hint: %s\n", f.hint)
	}
}

// logger returns the log of a long-running command: for people on a
// terminal, else JSON.
func (a *app) logger(level slog.Level) *slog.Logger {
	if f, ok := a.env.Stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		_, plain := a.env.LookupEnv("NO_COLOR")
		return slog.New(terminalLog(f, level, plain))
	}
	always := true
	return slog.New(slog.NewJSONHandler(&output{to: a.env.Stderr, json: &always}, &slog.HandlerOptions{Level: level}))
}

// terminalLog writes log lines for people, in colours unless they are to be
// plain.
func terminalLog(w io.Writer, level slog.Level, plain bool) slog.Handler {
	return tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: plain, TimeFormat: "15:04:05.000", ReplaceAttr: printable})
}

// printable returns an attribute of a log line whose text prints. Colours are
// control characters too, so what is written cannot be looked at as a whole.
func printable(_ []string, attr slog.Attr) slog.Attr {
	text := ""
	switch attr.Value.Kind() {
	case slog.KindString:
		text = attr.Value.String()
	case slog.KindAny:
		if _, ok := attr.Value.Any().(slog.Level); ok {
			return attr
		}
		text = fmt.Sprintf("%+v", attr.Value.Any())
	default:
		return attr
	}
	// The handler quotes what has spaces and takes \x1b in that for an escape
	// character of a colour, also where somebody wrote it out.
	attr.Value = slog.StringValue(strings.ReplaceAll(view.Line(text), `\x1b`, `\u001b`))
	return attr
}
