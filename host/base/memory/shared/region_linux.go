package shared

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/memory"
)

// hugePage is the size of large pages.
const hugePage = 2 << 20

// Region is memory that processes share, for reading. It stays when they end that it was found with.
type Region struct {
	file, name int // descriptors: of the memory file, and of the socket that announces it; -1 for none

	reserved unsafe.Pointer
	length   uintptr // of what is reserved
	bytes    []byte
}

// Bytes is the whole region. Its first byte lies at the start of a large page.
func (r *Region) Bytes() []byte { return r.bytes }

// Discard does nothing: what one process does not need another may.
func (r *Region) Discard([]byte) {}

// Close gives back what this process has of the region. Nothing may use it afterwards.
func (r *Region) Close() error {
	r.unmap()
	for _, fd := range []*int{&r.name, &r.file} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

func (r *Region) unmap() {
	if r.reserved != nil {
		_ = unix.MunmapPtr(r.reserved, r.length) // it is what was mapped
		r.reserved, r.bytes = nil, nil
	}
}

// remap maps the file, at the start of a large page.
func (r *Region) remap(size int64, protection int) error {
	r.unmap()
	length := uintptr(size) + hugePage
	at, err := unix.MmapPtr(-1, 0, nil, length, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	r.reserved, r.length = at, length
	start := unsafe.Add(at, -uintptr(at)&(hugePage-1))
	if _, err := unix.MmapPtr(r.file, 0, start, uintptr(size), protection, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return err
	}
	r.bytes = unsafe.Slice((*byte)(start), size)
	return nil
}

// announce tells other processes of the region.
func (r *Region) announce(k Key) {
	if name, err := bind(announcement{os.Getpid(), r.file}.name(k)); err == nil {
		r.name = name
	}
}

// collapse is replaced by tests.
var collapse = func(b []byte) error { return unix.Madvise(b, unix.MADV_COLLAPSE) }

// largePages has the system put memory of a file into large pages, whatever it does by itself (Linux 6.1), and says
// why it does not. Every call has it look at all processors: there are few.
func largePages(b []byte) error {
	first := min(hugePage, len(b))
	if err := collapse(b[:first]); err != nil {
		return err
	}
	if rest := b[first:]; len(rest) >= hugePage && collapse(rest) != nil { // it ends with the first page that it has not
		for ; len(rest) >= hugePage; rest = rest[hugePage:] {
			_ = collapse(rest[:hugePage]) // the others are as good, only slower
		}
	}
	return nil
}

// touch takes memory for each large page, without which there is nothing that could become one.
func touch(b []byte) {
	for i := 0; i < len(b); i += hugePage {
		b[i] = 0
	}
}

// create makes a content, for itself and for who looks for it from now on.
func create(c Content) (r *Region, err error) {
	r = &Region{file: -1, name: -1}
	defer func() {
		if err != nil {
			r.Close()
			r = nil
		}
	}()
	if r.file, err = memoryFile(c.Key.fileName()); err != nil {
		return r, own("no memory file can be made: %w", err)
	}
	if err := unix.Ftruncate(r.file, c.Size); err != nil {
		return r, own("a memory file cannot have %d bytes: %w", c.Size, err)
	}
	if err := r.remap(c.Size, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return r, own("a memory file cannot be mapped: %w", err)
	}
	// Nobody else can write to it, or change its length.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	// before Linux 5.1
	if _, err := unix.FcntlInt(uintptr(r.file), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE); err != nil {
		if _, err := unix.FcntlInt(uintptr(r.file), unix.F_ADD_SEALS, seals); err != nil {
			return r, own("a memory file cannot be sealed: %w", err)
		}
	}
	if c.Wish != Always {
		first := r.bytes[:min(hugePage, len(r.bytes))]
		touch(first)
		if err := largePages(first); err != nil {
			return r, own("memory files get small pages only: %w", err)
		}
	}
	if err := c.Afford(); err != nil {
		return r, err
	}
	r.announce(c.Key)
	if r.name < 0 {
		return r, own("it cannot be announced")
	}
	touch(r.bytes)
	_ = largePages(r.bytes)
	if err := c.Make(r.bytes); err != nil {
		return r, err
	}
	return r, r.seal(c.Size)
}

// memoryFile makes a file in memory that other users cannot open.
func memoryFile(name string) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err != nil { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// seal makes the region one that nobody can change, and maps it for reading. Before Linux 6.7 a sealed file can be
// mapped only where it was opened for reading, as others open it.
func (r *Region) seal(size int64) error {
	r.unmap()
	if err := memory.Seal(uintptr(r.file), unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return own("a memory file cannot be sealed: %w", err)
	}
	reading, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r.file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return own("descriptors cannot be opened again: %w", err)
	}
	err = unix.Dup3(reading, r.file, unix.O_CLOEXEC)
	unix.Close(reading)
	if err == nil {
		err = r.remap(size, unix.PROT_READ)
	}
	if err != nil {
		return own("a memory file cannot be mapped: %w", err)
	}
	_ = largePages(r.bytes) // maps them as such
	return nil
}

// Where facts of the machine are said; tests have others.
var (
	overcommit = "/proc/sys/vm/overcommit_memory"
	nodes      = "/sys/devices/system/node/has_memory"
)

// allowed says why a content cannot be shared, or is not to be.
func allowed(c Content) error {
	if c.Wish == Never {
		return own("it is not to be")
	}
	if c.Size < Least {
		return own("found %d bytes, needed at least %d", c.Size, Least)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil || limit.Cur < uint64(c.Size) {
		return own("the size of files is limited") // beyond it a signal ends the process
	}
	// Where the system promises no more memory than it has, a memory file that finds none ends the process.
	if mode, err := os.ReadFile(overcommit); err != nil || strings.TrimSpace(string(mode)) == "2" {
		return own("the system does not overcommit memory")
	}
	if list, err := os.ReadFile(nodes); c.Wish != Always && err == nil && strings.ContainsAny(string(list), ",-") {
		return own("memory is nearer to some processors than to others (nodes %s)", strings.TrimSpace(string(list)))
	}
	return nil
}

// Available says why memory is not shared on this machine by default; nil where it is.
func Available() error {
	r, err := Open(probe(LargePages))
	if err != nil {
		return err
	}
	defer r.Close()
	if _, ok := (announcement{os.Getpid(), r.file}).open(probe(LargePages).Key, Least); !ok {
		return own("memory files of processes cannot be found under /proc")
	}
	return nil
}
