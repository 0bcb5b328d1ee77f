package plugin

import (
	"fmt"
	"os"
	"testing"

	"github.com/opgraft/graft/host/worker"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(playedMachine); text != "" {
		here = played(text)
	}
	worker.Main(Tasks())            // this executable is its own child
	os.Unsetenv(UnverifiedVariable) // a developer's setting would hide refusals
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
