package cli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	_ "modernc.org/sqlite" // registers "sqlite"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
	"ichido.dev/ichido/internal/view"
	"ichido.dev/ichido/store/memory"
	"ichido.dev/ichido/store/sqlite"
)

// nasty is what a stranger may have in what he sends: terminal controls of
// every kind, as runes and as bytes, and what turns text around.
const nasty = "a\x1b[31m\x9b2J\u009b2J\x85\x7f\u202e\u2066\u200b\r\a\x00z"

// mustPrint fails where a text holds what a terminal obeys.
func mustPrint(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: it is not UTF-8: %q", what, text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%s: %q at %d does not print: %q", what, text[i:min(i+4, len(text))], i, text)
	}
}

// nastyStore holds a dead event and a held claim of a stranger.
func nastyStore(t *testing.T) *memory.Store {
	t.Helper()
	store := memory.New(memory.Options{})
	if v, _, err := store.Claims().Claim(t.Context(), nasty); err != nil || v != ichido.Accepted {
		t.Fatalf("claim: %v, %v", v, err)
	}
	_, err := store.Put(t.Context(), []ichido.Record{nastyRecord()})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func nastyRecord() ichido.Record {
	return ichido.Record{
		Source: "a", Key: nasty, Type: nasty, Scheme: nasty, State: ichido.Dead, Cause: nasty, ReceivedAt: time.UnixMilli(1),
		Body: []byte("{\"a\":\"\u009b2J\u202e\x7f\",\r\"b\":1}"), Confirmed: []byte("{\"c\":\"\u009b\x9b\x7f\"}"),
	}
}

func TestNothingThatAStrangerSentControlsTheTerminal(t *testing.T) {
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, nasty)
	}))
	t.Cleanup(answering.Close)
	store := nastyStore(t)
	bodies := map[string][]byte{
		"JSON": []byte("{\"a\":\"\u009b2J\u202e\x7f\",\r\"b\":1}"), "text": []byte("a\u009b\x7f\x1b\u202e"), "bytes": []byte(nasty), "none": nil,
	}
	for _, asJSON := range []bool{false, true} {
		var out, errOut bytes.Buffer
		a := newApp(Env{Stdout: &out, Stderr: &errOut, LookupEnv: func(string) (string, bool) { return "", false }})
		a.json = asJSON
		run := func(name string, f func() error) {
			t.Helper()
			out.Reset()
			errOut.Reset()
			if err := f(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			name = fmt.Sprintf("%s, JSON %v", name, asJSON)
			if out.Len()+errOut.Len() == 0 {
				t.Errorf("%s: it prints nothing", name)
			}
			mustPrint(t, name, out.String())
			mustPrint(t, name+", standard error", errOut.String())
			if asJSON && out.Len() > 0 && !json.Valid(out.Bytes()) {
				t.Errorf("%s: it is no JSON: %s", name, out.String())
			}
		}
		run("dead", func() error { return a.printDead(t.Context(), store, &selection{}) })
		run("events", func() error { return a.printPage(t.Context(), store, &selection{}) })
		for name, body := range bodies {
			rec := nastyRecord()
			rec.Body = body
			rec.Header = []byte("User-Agent: \x9b2J\x85\u009b\u202e\x7f\x1b\r\nX\u202e: \u009b\r\n")
			e := view.OfRecord(&rec)
			run("show "+name, func() error { return a.print(e, func(w io.Writer) { printEvent(w, e) }) })
			run("send --dry-run "+name, func() error {
				return a.printParcel(&parcel{header: http.Header{"X-Event": {nasty}}, body: body})
			})
		}
		run("send", func() error {
			return a.post(t.Context(), &sendFlags{}, &parcel{url: answering.URL, header: http.Header{}, body: []byte("{}")})
		})
		run("check", func() error {
			file := config.Parse([]byte("store: \"a\u009b\u202e\x7f\"\nsources:\n  - {name: \"x\u009b\u202e\", provider: h\u202emac}\n"))
			file.Add("store", nasty, nasty)
			var refused *failure
			if err := a.report(file, nasty); !errors.As(err, &refused) {
				return fmt.Errorf("with a problem it returns %w", err)
			}
			return nil
		})
		run("an error", func() error {
			a.tell("ichido", "error", nasty, &failure{hint: nasty})
			return nil
		})
	}
}

// TestLogLinesControlNoTerminal: the handler for terminals leaves escape
// characters in what it logs, and makes them of their spelling.
func TestLogLinesControlNoTerminal(t *testing.T) {
	line := func(plain bool, value any) string {
		var out bytes.Buffer
		log := slog.New(terminalLog(&out, slog.LevelInfo, plain))
		log.With("with", value).Info("m", "value", value, slog.Group("g", "in", value))
		return out.String()
	}
	for _, plain := range []bool{true, false} {
		for _, value := range []any{nasty, errors.New(nasty), []string{nasty}, "a \x1b[31m", `a \x1b[31m`, `\x1b[31m`, `\\x1b[31m =`} {
			got := line(plain, value)
			for _, colour := range []string{"\x1b[0m", "\x1b[2m", "\x1b[92m"} {
				got = strings.ReplaceAll(got, colour, "")
			}
			mustPrint(t, fmt.Sprintf("plain %v, %q", plain, value), got)
		}
	}
	if got := line(false, "good"); !strings.Contains(got, "\x1b[92mINF\x1b[0m m") || !strings.Contains(got, "good") {
		t.Errorf("an ordinary line has no colours: %q", got)
	}
	var out bytes.Buffer
	a := newApp(Env{Stderr: &out})
	a.logger(slog.LevelInfo).Info("m", "value", nasty)
	mustPrint(t, "not on a terminal", out.String())
	if !json.Valid(out.Bytes()) {
		t.Errorf("not on a terminal the log is no JSON: %s", out.String())
	}
}

// TestNoRowOfATableIsForged: what a stranger sent ends no line and no cell.
func TestNoRowOfATableIsForged(t *testing.T) {
	store := memory.New(memory.Options{})
	rec := nastyRecord()
	rec.Source, rec.Type, rec.Cause, rec.Key = "a\tb", "x\ny\tz", "why\n1  ev_1", "k\nstate  done"
	if _, err := store.Put(t.Context(), []ichido.Record{rec}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newApp(Env{Stdout: &out})
	if err := a.printPage(t.Context(), store, &selection{}); err != nil {
		t.Fatal(err)
	}
	if err := a.printDead(t.Context(), store, &selection{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("two tables of one row have %d lines, want 4:\n%s", got, out.String())
	}
	out.Reset()
	printEvent(&out, view.OfRecord(&rec))
	if !strings.Contains(out.String(), `k\x0astate  done`) {
		t.Errorf("a line ends within the key:\n%s", out.String())
	}
}

// full is a disk without room after some bytes.
type full struct{ room int }

var errFull = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	n := min(f.room, len(p))
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// storeFile makes a store with a dead event and returns how commands name it.
func storeFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inbox.db")
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), []ichido.Record{nastyRecord()}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

func TestResultThatCannotBeWrittenIsAnError(t *testing.T) {
	store := storeFile(t)
	env := Env{Driver: "sqlite", LookupEnv: func(name string) (string, bool) { return "secret-of-this-test-0123456789", name == "SECRET" }}
	run := func(out io.Writer, args ...string) (int, string) {
		var errOut bytes.Buffer
		env := env
		env.Args, env.Stdout, env.Stderr = args, out, &errOut
		return Run(t.Context(), env), errOut.String()
	}
	for _, command := range []string{
		"version", "token", "events --store S", "dead --store S", "show ID --store S", "show ID --body --store S",
		"replay --state dead --dry-run --store S", "check --providers", "check good.yaml",
		"send hmac --dry-run --to http://127.0.0.1:1 --secret env:SECRET",
		"", "help", "help serve", "serve --help", "completion bash", "__complete events --state d",
	} {
		args := strings.Fields(command)
		for i, arg := range args {
			switch arg {
			case "S":
				args[i] = store
			case "ID":
				args[i] = "ev_00000000000000000000000000"
			case "good.yaml":
				args[i] = filepath.Join(t.TempDir(), arg)
				if err := os.WriteFile(args[i], []byte("sources:\n  - {name: a, provider: hmac, secrets: [env:SECRET]}\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, args := range [][]string{args, slices.Concat([]string{"--json"}, args)} {
			if code, text := run(io.Discard, args...); code != exitOK {
				t.Errorf("%q: exit code %d, %s", args, code, text)
				continue
			}
			for _, room := range []int{0, 1} {
				code, text := run(&full{room}, args...)
				if code != exitError || strings.Count(text, errFull.Error()) != 1 {
					t.Errorf("%q with room for %d bytes: exit code %d, want %d; it says %q", args, room, code, exitError, text)
				}
			}
		}
	}
}
