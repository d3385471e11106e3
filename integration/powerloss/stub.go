package main

import (
	"context"
	"io"
)

func diskFull(context.Context, options, io.Writer) error     { return nil }
func traces(context.Context, options, io.Writer) error       { return nil }
func failingFlush(context.Context, options, io.Writer) error { return nil }
