//go:build !linux

package worker

import (
	"os"
	"syscall"
)

// hardenChild has nothing to do here: Go's own handlers report a crash.
func hardenChild() error { return nil }

func redirectOutput() {}

func childAttributes() *syscall.SysProcAttr { return nil }

func awaitExit(int) {}

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func signalName(s syscall.Signal) string { return s.String() }
