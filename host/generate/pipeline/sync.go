package pipeline

import (
	"context"
	"errors"
	"io"
)

// runSync runs the stages one after another, a window at a time.
func runSync[T, R, W any](ctx context.Context, s Stages[T, R, W], o Options) error {
	for first, ended := 0, false; !ended; {
		var window []Item[T]
		instead := map[int]W{}
		count := 0
		for ; count < o.Window; count++ {
			text, err := s.Read()
			if errors.Is(err, io.EOF) {
				ended = true
				break
			}
			if err != nil {
				return err
			}
			v, err := s.Encode(text)
			if err != nil {
				if instead[first+count], err = s.failed(first+count, err); err != nil {
					return err
				}
				continue
			}
			window = append(window, Item[T]{first + count, v})
		}
		sortWindow(window, s.Length)
		results := map[int]R{}
		next := func() (*Item[T], error) {
			if len(window) == 0 {
				return nil, ctx.Err()
			}
			item := window[0]
			window = window[1:]
			return &item, nil
		}
		if err := s.Device(ctx, next, func(index int, r R) error { results[index] = r; return nil }); err != nil {
			return err
		}
		for i := first; i < first+count; i++ {
			w, failed := instead[i]
			if !failed {
				var err error
				if w, err = s.Decode(i, results[i]); err != nil {
					w, err = s.failed(i, err)
				}
				if err != nil {
					return err
				}
			}
			if err := s.Write(i, w); err != nil {
				return err
			}
			o.Done(i + 1)
		}
		first += count
	}
	return nil
}
