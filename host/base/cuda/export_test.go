package cuda

import (
	"errors"
	"testing"
)

// Functions are the names of the driver's functions that this package calls.
func Functions() []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

// SetModuleFile takes another file for the one in /proc during a test.
func SetModuleFile(t *testing.T, path string) {
	old := moduleFile
	moduleFile = path
	t.Cleanup(func() { moduleFile = old })
}

// Nowhere is the error of a search that finds nothing.
func Nowhere() (string, error) {
	tried := places("")
	return tried[0], notFound(tried, errors.New("not there"))
}
