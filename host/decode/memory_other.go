//go:build !linux

package decode

// halfOfMemory is a cautious guess where the machine is not asked.
func halfOfMemory() int64 { return 4 << 30 }
