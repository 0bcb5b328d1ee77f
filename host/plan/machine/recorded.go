package machine

import (
	"runtime"
	"time"
)

// Record is what was measured, and how much it is worth.
type Record struct {
	Figures
	When      time.Time
	Spread    float64 // the distance of the quartiles of the memory's rounds, by their median
	CoreShare float64 // that a thread got; below [BusyShare] the machine did other work
}

// Recorded is what was last measured on this processor with as many threads, with whatever plugins, and
// holds still. ok is false where nothing is on record. Folder and threads are as in Options. Nothing is
// measured.
func Recorded(folder string, threads int) (r Record, ok bool) {
	if threads <= 0 {
		threads = runtime.NumCPU()
	}
	_, stored, err := read(folder)
	if err != nil {
		return r, false
	}
	here := cpu()
	for _, e := range stored.Rooflines { // the last measured first
		ours := e.CPU == here && e.Cores == runtime.NumCPU() && e.Threads == threads
		if when, err := time.Parse(time.RFC3339, e.Date); err == nil && ours && e.current(time.Now()) {
			return Record{e.Figures, when, e.Spread, e.CoreShare}, true
		}
	}
	return r, false
}
