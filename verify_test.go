package graft_test

import (
	"errors"
	"math"
	"testing"

	"github.com/opgraft/graft"
)

// TestShadowRefuses what it cannot do: with Strict there is no way back.
func TestShadowRefuses(t *testing.T) {
	for name, options := range map[string][]graft.EnableOption{
		"Strict":                     {graft.Shadow(), graft.Strict()},
		"a share below 0":            {graft.Shadow(-0.1)},
		"a share above 1":            {graft.Shadow(1.1)},
		"a share that is no number":  {graft.Shadow(math.NaN())},
		"two shares":                 {graft.Shadow(0.1, 0.2)},
		"Differences of none":        {graft.Shadow(), graft.Differences(0)},
		"Differences without Shadow": {graft.Differences(3)},
	} {
		if err := graft.Enable(options...); !errors.Is(err, graft.ErrOption) {
			t.Errorf("%s: got %v, want ErrOption", name, err)
		}
	}
}
