//go:build !linux

package threads

import "time"

// ProcessorTime is the time that passes, where the system's clock of a thread is not read.
func ProcessorTime() time.Duration { return time.Since(started) }

var started = time.Now()
