package threads

import (
	"testing"
	"time"
)

// TestCoreShare: threads that compete for the cores leave each other less.
func TestCoreShare(t *testing.T) {
	alone := CoreShare(50 * time.Millisecond)
	if alone <= 0 || alone > 1 {
		t.Fatalf("a share of %v", alone)
	}
	rivals := make(chan float64)
	const n = 3
	for range n {
		go func() { rivals <- CoreShare(400 * time.Millisecond) }()
	}
	least := 1.0
	for range n {
		least = min(least, <-rivals)
	}
	if least > 0.8 { // of n threads a core, one got no more than a half
		t.Errorf("%d threads a core, and none got less than %v of it", n, least)
	}
}
