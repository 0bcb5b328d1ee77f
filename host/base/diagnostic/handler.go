package diagnostic

import (
	"context"
	"fmt"
	"log/slog"
)

// Logger is a logger whose texts have gone through Printable, for names and errors that models and plugins bring.
// Handlers that write JSON would leave marks that turn text around, and others all of it.
func Logger(l *slog.Logger) *slog.Logger { return slog.New(printing{l.Handler()}) }

type printing struct{ slog.Handler }

func (h printing) Handle(ctx context.Context, r slog.Record) error {
	safe := slog.NewRecord(r.Time, r.Level, Printable(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		safe.AddAttrs(printableAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, safe)
}

func (h printing) WithAttrs(attrs []slog.Attr) slog.Handler {
	safe := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		safe[i] = printableAttr(a)
	}
	return printing{h.Handler.WithAttrs(safe)}
}

func (h printing) WithGroup(name string) slog.Handler { return printing{h.Handler.WithGroup(name)} }

// printableAttr leaves values alone that say nothing which would have to be escaped.
func printableAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString, slog.KindAny:
		text := fmt.Sprint(v.Any())
		if safe := Printable(text); safe != text {
			return slog.String(a.Key, safe)
		}
	case slog.KindGroup:
		group := make([]slog.Attr, 0, len(v.Group()))
		for _, inner := range v.Group() {
			group = append(group, printableAttr(inner))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	}
	return a
}
