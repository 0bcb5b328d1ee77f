//go:build !linux

package worker

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// guarded: without Linux's means a child is held by deadlines alone.
const guarded = false

const sigsys = -1

func attributes() *syscall.SysProcAttr { return nil }

func namespaces([]string) (*syscall.SysProcAttr, error) {
	return nil, errors.New("there are none on " + runtime.GOOS)
}

func guard(*setting) error { return errors.New("there is no guard on " + runtime.GOOS) }

// hold has nothing to do here: Go's own handlers report a crash.
func (s *setting) hold() error { return nil }

func only(int) int { return 0 }

func usage(int) (memory, shared, threads int64) { return 0, 0, 0 }

func held([]*os.File) int64 { return 0 }

func killTree(int) {}

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil && pid > 0 {
		_ = p.Kill()
	}
}

func signalName(s syscall.Signal) string { return s.String() }
