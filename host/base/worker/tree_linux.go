package worker

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stat is a line of /proc/PID/stat, what comes after the name of the program.
func stat(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:]))
}

// Fields of stat.
const (
	state   = 0
	parent  = 1
	threads = 17
)

// descendants are the processes below one, those that have ended left out.
func descendants(root int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children, dead := map[int][]int{}, map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields := stat(pid)
		if len(fields) <= threads {
			continue
		}
		above, _ := strconv.Atoi(fields[parent])
		children[above] = append(children[above], pid)
		dead[pid] = fields[state] == "Z" || fields[state] == "X"
	}
	var list []int
	var walk func(pid int)
	walk = func(pid int) {
		for _, child := range children[pid] {
			if !dead[child] {
				list = append(list, child)
			}
			walk(child)
		}
	}
	walk(root)
	return list
}

// only is the first process below one, 0 where there is none.
func only(root int) int {
	if list := descendants(root); len(list) > 0 {
		return list[0]
	}
	return 0
}

// killTree ends all processes below one, and those that they start meanwhile.
func killTree(root int) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		list := descendants(root)
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			kill(-pid) // its group, if it leads one
			kill(pid)
		}
	}
}

// kill ends a process, or with a negative number a group.
func kill(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }

// usage is the memory that a process has in use, in bytes, and its threads.
func usage(pid int) (memory, shared, count int64) {
	if fields := stat(pid); len(fields) > threads {
		count, _ = strconv.ParseInt(fields[threads], 10, 64)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(data)); err == nil && len(fields) > 2 {
		memory, _ = strconv.ParseInt(fields[1], 10, 64)
		shared, _ = strconv.ParseInt(fields[2], 10, 64)
	}
	page := int64(os.Getpagesize())
	return memory * page, shared * page, count
}

// held is the memory that files take, in bytes.
func held(files []*os.File) (bytes int64) {
	for _, f := range files {
		var s unix.Stat_t
		if c, err := f.SyscallConn(); err == nil {
			var failed error
			if c.Control(func(fd uintptr) { failed = unix.Fstat(int(fd), &s) }) == nil && failed == nil {
				bytes += s.Blocks * 512
			}
		}
	}
	return bytes
}
