package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// throttle retains a share of the cores' time for others.
type throttle struct {
	target float64
	begin  time.Time
	used   time.Duration // of the processor, before the beginning

	mutex sync.Mutex
	pause time.Duration
}

func newThrottle(target float64) *throttle {
	return &throttle{target: target, begin: time.Now(), used: processor(), pause: time.Millisecond}
}

// processor is the time of the processor that this process took.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// share is the part of the cores' time that was taken since the beginning.
func (t *throttle) share() float64 {
	return float64(processor()-t.used) / float64(time.Since(t.begin)) / float64(runtime.NumCPU())
}

// wait pauses for longer while the share is above the target, and for less while it is below.
func (t *throttle) wait() {
	t.mutex.Lock()
	if t.share() > t.target {
		t.pause = min(t.pause*5/4, time.Second)
	} else {
		t.pause = max(t.pause*4/5, 10*time.Microsecond)
	}
	pause := t.pause
	t.mutex.Unlock()
	time.Sleep(pause)
}

// holding is what a process holds at a moment.
type holding struct {
	resident    int64 // bytes
	descriptors int
	goroutines  int
	children    int
}

func (h holding) String() string {
	return fmt.Sprintf("%.0f MB, %d descriptors, %d goroutines, %d children", float64(h.resident)/1e6, h.descriptors,
		h.goroutines, h.children)
}

func held() holding {
	h := holding{goroutines: runtime.NumGoroutine(), children: len(children(os.Getpid()))}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
		h.resident = pages * int64(os.Getpagesize())
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.descriptors = len(entries)
	}
	return h
}

// watch looks at what the process holds until the end.
func watch(end time.Time, each time.Duration) []holding {
	var all []holding
	for time.Now().Before(end) {
		time.Sleep(each)
		all = append(all, held())
	}
	return all
}

// settled is what is held after all was closed and goroutines that end have ended.
func settled() holding {
	best := held()
	for range 100 {
		debug.FreeOSMemory()
		now := held()
		best.resident, best.descriptors = min(best.resident, now.resident), min(best.descriptors, now.descriptors)
		best.goroutines, best.children = min(best.goroutines, now.goroutines), min(best.children, now.children)
		time.Sleep(20 * time.Millisecond)
	}
	return best
}

// judge compares what is held after all was closed with what was held when all was closed before, and of a load of
// minutes also its second eighth with its last: what is open at a moment differs by more in seconds.
func (l *load) judge(before holding, history []holding, after holding) {
	if grown := after.resident - before.resident; grown > leak {
		l.blame("%.0f MB of memory more after all was closed than before", float64(grown)/1e6)
	}
	if after.descriptors > before.descriptors {
		l.blame("%d descriptors after all was closed, %d before: %q", after.descriptors, before.descriptors, openFiles())
	}
	if after.children > 0 {
		l.blame("%d children after all was closed", after.children)
	}
	eighth := len(history) / 8
	if eighth == 0 || l.throttle.begin.Add(time.Minute).After(time.Now()) {
		return
	}
	early, late := history[eighth:2*eighth], history[len(history)-eighth:]
	middle := func(all []holding, what func(holding) int64) int64 {
		var numbers []int64
		for _, h := range all {
			numbers = append(numbers, what(h))
		}
		slices.Sort(numbers)
		return numbers[len(numbers)/2]
	}
	resident := func(h holding) int64 { return h.resident }
	if grown := middle(late, resident) - middle(early, resident); grown > leak {
		l.blame("the resident memory grew by %.0f MB", float64(grown)/1e6)
	}
	descriptors := func(h holding) int64 { return int64(h.descriptors) }
	if grown := middle(late, descriptors) - middle(early, descriptors); grown > 8 {
		l.blame("%d descriptors more than before", grown)
	}
}

// openFiles are what the process's descriptors stand for.
func openFiles() (names []string) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil {
			names = append(names, name)
		}
	}
	return names
}
