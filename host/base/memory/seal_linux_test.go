package memory

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

// TestSealBusy: a file that somebody still holds is sealed when they let go.
func TestSealBusy(t *testing.T) {
	fd := must.Value(unix.MemfdCreate("busy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(fd)
	must.Succeed(t, unix.Ftruncate(fd, 4096))
	held := must.Value(unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EBUSY {
		t.Fatalf("%v: it is not busy, and nothing is tested", err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = unix.Munmap(held)
	}()
	must.Succeed(t, Seal(uintptr(fd), unix.F_SEAL_WRITE|unix.F_SEAL_SEAL))
	must.Equal(t, must.Value(unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0))(t), unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
}
