package cache

import "syscall"

// hugePage is the size of the pages that the cache asks for. Blocks of one sample
// lie far apart for a layer, and with pages of 4 KiB looking addresses up takes
// longer than reading: a third of the speed of attention over a cache.
const hugePage = 2 << 20

// reserve maps zeroed memory that costs nothing until it is touched, in whole huge
// pages: the mapping, and the bytes in it that were asked for.
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

func release(mapping []byte) error {
	if mapping == nil {
		return nil
	}
	return syscall.Munmap(mapping)
}
