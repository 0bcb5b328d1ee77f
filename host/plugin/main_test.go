package plugin

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "graft-fixtures-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fixtures.folder = folder
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}
