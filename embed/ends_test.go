package embed

import (
	"context"
	"errors"
	"testing"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/encoder"
)

// TestEndsBetweenTexts: after a context's end no more texts become tokens.
func TestEndsBetweenTexts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	rows := 0
	_, err := all(ctx, 1000, 4096, func(i int) (encoder.Row, error) {
		if rows++; i == 2 {
			cancel()
		}
		return encoder.Row{}, errors.New("a bad text")
	}, func(context.Context, encoder.Row, bool) (*batch.Call[encoder.Row, int], error) { return nil, nil })
	if rows != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d texts became tokens, 3 are wanted (%v)", rows, err)
	}
}
