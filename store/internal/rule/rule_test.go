package rule

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ichido.dev/ichido"
)

func TestCauseIsShortPrintableText(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"plain":                        "plain",
		"line\nbreak\x1b[31m":          "line break [31m",
		"bad\xff":                      "bad?",
		strings.Repeat("x", 300):       strings.Repeat("x", 256),
		strings.Repeat("度", 100):       strings.Repeat("度", 85),
		"a" + strings.Repeat("é", 128): "a" + strings.Repeat("é", 127),
	} {
		if got := Cause(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	wake := make(chan struct{})
	defer close(wake)
	err := Run(ctx, func(context.Context) error {
		cancel()
		<-wake
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a handler that hangs: %v", err)
	}
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		if err := Run(t.Context(), func(context.Context) error { return want }); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := Run(t.Context(), func(context.Context) error { panic("at the disco") }); err == nil || !strings.Contains(err.Error(), "at the disco") {
		t.Errorf("a panic: %v", err)
	}
}

func TestCheckPutRefusesWhatCannotEnd(t *testing.T) {
	for _, c := range []struct {
		r  ichido.Record
		ok bool
	}{
		{ichido.Record{}, true},
		{ichido.Record{State: ichido.Claimed, Token: 1, Lease: time.Second}, true},
		{ichido.Record{State: ichido.Claimed, Token: 1}, false},
		{ichido.Record{State: ichido.Claimed, Lease: time.Second}, false},
		{ichido.Record{State: ichido.Done, Purged: true}, true},
		{ichido.Record{State: ichido.Dead, Purged: true}, false},
		{ichido.Record{Purged: true}, false},
	} {
		if err := CheckPut([]ichido.Record{{}, c.r}); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}
