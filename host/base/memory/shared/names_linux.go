package shared

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process says what it has by a name in the system's list of local sockets: no file is written, and the name is
// gone with the process, however that ends. A name is a hint that anyone may give. What it leads to is looked at.
const (
	prefix  = "@graft-weights-1/"
	maxList = 16 << 20 // of the list of sockets
	maxHint = 64       // names of one content that are looked at
)

// user is replaced by tests.
var user = os.Geteuid

// fileName is the name of memory files of a content.
func (k Key) fileName() string { return "graft-weights-" + hex.EncodeToString(k[:]) }

func keyName(k Key) string { return fmt.Sprintf("%s%d/%s/", prefix, user(), hex.EncodeToString(k[:])) }

// turnName is of the process that makes a content.
func turnName(k Key) string { return keyName(k) + "making" }

// announcement says which descriptor of which process is a memory file.
type announcement struct{ process, descriptor int }

// name is that of an announcement.
func (a announcement) name(k Key) string {
	return fmt.Sprintf("%s%d/%d", keyName(k), a.process, a.descriptor)
}

// bind takes a name that only one process can have.
func bind(name string) (socket int, err error) {
	socket, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(socket)
		return -1, err
	}
	return socket, nil
}

// announced are the announcements of a content.
func announced(k Key) (list []announcement) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil
	}
	defer f.Close()
	begin := keyName(k)
	lines := bufio.NewScanner(io.LimitReader(f, maxList))
	for lines.Scan() && len(list) < maxHint {
		_, rest, ok := strings.Cut(lines.Text(), begin)
		process, descriptor, both := strings.Cut(rest, "/")
		if !ok || !both {
			continue
		}
		p, err := strconv.Atoi(process)
		d, err2 := strconv.Atoi(descriptor)
		if err == nil && err2 == nil && p > 0 && d >= 0 {
			list = append(list, announcement{p, d})
		}
	}
	return list
}

// found is a memory file of this user, of the content's name and size.
type found struct {
	fd     int
	inode  uint64
	sealed bool // for ever: its bytes are what they will be
}

const forEver = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// open looks at what was announced. Nothing is waited for, whatever it is.
func (a announcement) open(k Key, size int64) (f found, ok bool) {
	path := fmt.Sprintf("/proc/%d/fd/%d", a.process, a.descriptor)
	if to, err := os.Readlink(path); err != nil || to != "/memfd:"+k.fileName()+" (deleted)" {
		return found{}, false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return found{}, false
	}
	defer func() {
		if !ok {
			unix.Close(fd)
		}
	}()
	var stat unix.Stat_t
	var system unix.Statfs_t
	if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || int(stat.Uid) != user() ||
		stat.Size != size {
		return found{}, false
	}
	// large pages of a pool may be missing when they are read
	if unix.Fstatfs(fd, &system) != nil || system.Type != unix.TMPFS_MAGIC {
		return found{}, false
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return found{}, false
	}
	return found{fd, stat.Ino, seals&forEver == forEver}, true
}
