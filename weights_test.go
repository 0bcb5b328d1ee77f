package graft_test

import (
	"errors"
	"testing"

	"github.com/opgraft/graft"
)

// TestWeightsContradict: sharing weights everywhere and nowhere is refused by all that take both.
func TestWeightsContradict(t *testing.T) {
	for name, open := range map[string]func() error{
		"Enable": func() error { return graft.Enable(graft.ShareWeights(), graft.OwnWeights()) },
		"NewGenerator": func() error {
			_, err := graft.NewGenerator(t.Context(), "models/g2p", graft.ShareWeights(), graft.OwnWeights())
			return err
		},
		"NewEmbedder": func() error {
			_, err := graft.NewEmbedder(t.Context(), "models/encoders/embedder", graft.OwnWeights(), graft.ShareWeights())
			return err
		},
	} {
		if err := open(); !errors.Is(err, graft.ErrOption) ||
			err.Error() != "ShareWeights and OwnWeights contradict each other" {
			t.Errorf("%s: got %v, want ErrOption", name, err)
		}
	}
}
