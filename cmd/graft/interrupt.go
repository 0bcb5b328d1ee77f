package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/host/base/diagnostic"
)

// grace is the time in which an interrupted command ends by itself: it removes what is half-written.
const grace = 3 * time.Second

// insist ends the process when an interrupted command goes on, as native code that hangs does. What it left
// in temporary folders, the next run removes.
func insist(working <-chan struct{}, stderr io.Writer, asJSON bool) {
	select {
	case <-working:
	case <-time.After(grace):
		report(stderr, asJSON, &diagnostic.Error{Found: fmt.Sprintf(
			"interrupted; native code did not stop within %v and was ended", grace)})
		os.Exit(exitInterrupted)
	}
}

// holdSignals sees to it that the signals that end a command reach it, when a plugin takes or ignores them.
func holdSignals(working <-chan struct{}) {
	again := signals.Hold(syscall.SIGINT, syscall.SIGTERM)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-working:
			return
		case <-ticks.C:
			again()
		}
	}
}
