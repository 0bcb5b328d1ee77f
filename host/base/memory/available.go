package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Available is how many bytes could be taken before the system, or the control
// group that the process runs in, has none left; 0 where that is not known.
func Available() int64 { return available("/proc", "/sys/fs/cgroup") }

func available(proc, groups string) int64 {
	free := field(filepath.Join(proc, "meminfo"), "MemAvailable:") << 10
	if left, limited := groupLeft(proc, groups); limited && (free == 0 || left < free) {
		free = max(left, 1)
	}
	return free
}

// groupLeft is what the process's control group, and those above it, may still
// take: the limit less what is in use and could not be dropped (cgroup v2).
func groupLeft(proc, groups string) (left int64, limited bool) {
	data, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return 0, false
	}
	_, path, found := strings.Cut(string(data), "0::")
	if !found {
		return 0, false
	}
	path, _, _ = strings.Cut(path, "\n")
	for at := filepath.Join(groups, path); strings.HasPrefix(at, groups); at = filepath.Dir(at) {
		limit, err := number(filepath.Join(at, "memory.max"))
		if err != nil {
			continue // no limit here: the file is not there, or says max
		}
		used, err := number(filepath.Join(at, "memory.current"))
		if err != nil {
			continue
		}
		rest := limit - used + field(filepath.Join(at, "memory.stat"), "inactive_file ")
		if !limited || rest < left {
			left, limited = rest, true
		}
	}
	return left, limited
}

// field is the number after a name in a file of lines; 0 where it has none.
func field(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if after, found := strings.CutPrefix(line, name); found {
			words := strings.Fields(after)
			if len(words) == 0 {
				return 0
			}
			n, _ := strconv.ParseInt(words[0], 10, 64)
			return n
		}
	}
	return 0
}

func number(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
