package memory

import "syscall"

// hugePage is the size of the pages that are requested. Blocks of one request's
// cache lie far apart for a layer, and with pages of 4 KiB looking addresses up
// takes longer than reading; weights that are read from end to end come a tenth
// faster.
const hugePage = 2 << 20

func reserve(bytes int64) (mapping, memory []byte, err error) {
	mapping, err = syscall.Mmap(-1, 0, int(bytes+hugePage), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	skip := -address(mapping) & (hugePage - 1)
	memory = mapping[skip : skip+bytes : skip+bytes]
	// A kernel without huge pages refuses; the memory is as good, only slower.
	_ = syscall.Madvise(memory, syscall.MADV_HUGEPAGE)
	return mapping, memory, nil
}

func discard(part []byte) {
	page := int64(syscall.Getpagesize())
	start := -address(part) & (page - 1)
	end := (int64(len(part)) - start) &^ (page - 1)
	if int64(len(part)) < start || end <= 0 {
		return
	}
	// Where it fails, the memory stays until the region is closed.
	_ = syscall.Madvise(part[start:start+end], syscall.MADV_DONTNEED)
}

func release(mapping []byte) error { return syscall.Munmap(mapping) }

func total() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
