package opening

import (
	"strings"
	"testing"
)

type nothing struct{}

func (nothing) Close() {}

// TestAbandonPanic: what panics while something is opened is an error, and the program goes on.
func TestAbandonPanic(t *testing.T) {
	_, err := Abandon(t.Context(), func() (nothing, error) {
		var list []int
		return nothing{}, t.Context().Err().(interface{ at(int) error }).at(list[3])
	})
	if err == nil || !strings.Contains(err.Error(), "shows a fault in its opening") ||
		!strings.Contains(err.Error(), "panic_test.go:") {
		t.Error(err)
	}
}
