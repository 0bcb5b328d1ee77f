package hook

import (
	"context"
	"log/slog"
)

// steady is a program's handler on a thread of C's, which a panic must not unwind: a line is lost then.
type steady struct{ slog.Handler }

func (h steady) Enabled(ctx context.Context, level slog.Level) bool {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

func (h steady) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return h.Handler.Handle(ctx, r)
}

func (h steady) WithAttrs(attrs []slog.Attr) slog.Handler { return steady{h.Handler.WithAttrs(attrs)} }

func (h steady) WithGroup(name string) slog.Handler { return steady{h.Handler.WithGroup(name)} }
