package graft_test

import (
	"math"
	"testing"
	"time"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
)

// TestOptionsRefused: what is out of range, contradicts something or would have no effect is refused by its name.
func TestOptionsRefused(t *testing.T) {
	shadow := func(s graft.ShadowOptions) graft.Options { return graft.Options{Shadow: &s} }
	for want, options := range map[string]graft.Options{
		"Shadow and Strict contradict":   {Shadow: &graft.ShadowOptions{}, Strict: true},
		"Shadow.Share is -0.1":           shadow(graft.ShadowOptions{Share: -0.1}),
		"Shadow.Share is 1.1":            shadow(graft.ShadowOptions{Share: 1.1}),
		"Shadow.Share is NaN":            shadow(graft.ShadowOptions{Share: math.NaN()}),
		"Shadow.Differences is -1":       shadow(graft.ShadowOptions{Differences: -1}),
		"ShareWeights is -1":             {Common: graft.Common{ShareWeights: -1}},
		`Runtime is "x.so"`:              {Common: graft.Common{Runtime: "x.so"}},
		"Threads is 4":                   {Common: graft.Common{Threads: 4}},
		"AnalysisTime is -1s":            {AnalysisTime: -time.Second},
		`Padding is "none"`:              {Padding: "none"},
		"Memory is 3":                    {Memory: 3},
		"Isolation.Crashes is -1":        {Isolation: graft.Isolation{Crashes: -1}},
		"Isolation.CallDeadline is -1ns": {Isolation: graft.Isolation{CallDeadline: -1}},
	} {
		must.Fail(t, graft.EnableWith(options), graft.ErrOption, want)
	}
}
