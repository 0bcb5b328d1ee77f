package decode

import "syscall"

// halfOfMemory is half of the machine's memory, in bytes.
func halfOfMemory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 4 << 30
	}
	return int64(info.Totalram) * int64(info.Unit) / 2
}
