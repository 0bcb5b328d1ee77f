package diagnostic

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

func TestCounted(t *testing.T) {
	for want, got := range map[string]string{"1 line": Counted(1, "line"), "0 lines": Counted(0, "line"),
		"2 batches": Counted(int64(2), "batch"), "3 matrices": Counted(3, "matrix"), "1 matrix": Counted(1, "matrix"),
		"2 keys": Counted(2, "key")} {
		must.Equal(t, got, want)
	}
}
