package pipeline

import (
	"context"
	"errors"
	"io"
)

// runSync runs the stages one after another, a window at a time.
func runSync[T, R any](ctx context.Context, s Stages[T, R], o Options) error {
	for first, ended := 0, false; !ended; {
		var window []Item[T]
		failed := map[int]bool{}
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
				if err := o.Failed(first+count, err); err != nil {
					return err
				}
				failed[first+count] = true
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
			text := ""
			if !failed[i] {
				var err error
				if text, err = s.Decode(results[i]); err != nil {
					if err := o.Failed(i, err); err != nil {
						return err
					}
					text = ""
				}
			}
			if err := s.Write(i, text); err != nil {
				return err
			}
			o.Done(i + 1)
		}
		first += count
	}
	return nil
}
