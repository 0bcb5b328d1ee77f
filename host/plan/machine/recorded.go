package machine

import (
	"runtime"
	"time"
)

// Recorded are the figures that were last measured on this processor with as many threads, with
// whatever build of the named plugin, and when that was. ok is false where none are on record. Folder
// and threads are as in Options. Nothing is measured.
func Recorded(folder string, threads int, plugin string) (f Figures, when time.Time, ok bool) {
	if threads <= 0 {
		threads = runtime.NumCPU()
	}
	_, stored, err := read(folder)
	if err != nil {
		return f, when, false
	}
	here := cpu()
	for _, e := range stored.Rooflines { // the last measured first
		date, err := time.Parse(time.RFC3339, e.Date)
		if err == nil && e.Plugins[plugin] != "" && e.CPU == here && e.Cores == runtime.NumCPU() && e.Threads == threads &&
			e.plausible() {
			return e.Figures, date, true
		}
	}
	return f, when, false
}
