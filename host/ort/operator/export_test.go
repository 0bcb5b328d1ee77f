package operator

import (
	"sync/atomic"

	"github.com/opgraft/graft/host/ort"
)

// Made is how many domains a library has.
func Made(l *ort.Library) int { return len(domainsOf.Of(l).made) }

// Known says whether the domain of plugins is known.
func Known(l *ort.Library) *atomic.Bool { return &domainsOf.Of(l).known }
