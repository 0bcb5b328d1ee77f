package manifest

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

// TestCompareVersions: the order of https://semver.org, 11, each before the next.
func TestCompareVersions(t *testing.T) {
	order := []string{"0.9.0", "0.10.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
		"1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1"}
	for i, a := range order {
		if !IsVersion(a) {
			t.Errorf("%s is no version", a)
		}
		for j, b := range order {
			if got := CompareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
	must.Equal(t, CompareVersions("1.0.0+a", "1.0.0+b"), 0)
}
