package worker

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/internal/must"
)

func init() {
	// A child fills memory that it shares, a part after the other, and maps none of it for long.
	tasks["fill shared"] = Handle(func(_ context.Context, bytes int64) (bool, error) {
		const part = 16 << 20
		for at := int64(0); at < bytes; at += part {
			b, err := unix.Mmap(int(Inherited(0).Fd()), at, part, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return false, err
			}
			for i := 0; i < part; i += os.Getpagesize() {
				b[i] = 1
			}
			if err := unix.Munmap(b); err != nil {
				return false, err
			}
		}
		for {
			time.Sleep(time.Hour)
		}
	})
}

// TestSharedMemoryCounts: what a child writes into memory that it shares counts against its limit, mapped or not.
func TestSharedMemoryCounts(t *testing.T) {
	const bytes, limit = 512 << 20, 256 << 20
	fd := must.Value(unix.MemfdCreate("shared", unix.MFD_CLOEXEC))(t)
	f := os.NewFile(uintptr(fd), "shared")
	defer f.Close()
	must.Succeed(t, f.Truncate(bytes))
	child := must.Value(Start(t.Context(), Options{Subject: "/p/libtoy.so", Deadline: time.Minute, Memory: limit,
		Files: []*os.File{f}}))(t)
	defer child.Close()
	var done bool
	err := child.Run(t.Context(), "fill shared", int64(bytes), &done)
	if err == nil || !strings.Contains(err.Error(), "took more than 0.25 GiB of memory") {
		t.Error(err)
	}
}
