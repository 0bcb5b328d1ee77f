//go:build unix

package file

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/plugin/refusal"
)

// TryLock takes an advisory lock that the kernel drops when the process ends. ok is false when another
// process, or another open file of this one, has it.
func TryLock(f *os.File) (ok bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

// Lock opens and locks a file, waiting while others have it. Closing the file unlocks it.
func Lock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, refusal.Store(path, "cannot make the lock file", err)
	}
	for {
		ok, err := TryLock(f)
		if ok {
			return f, nil
		}
		if err != nil {
			f.Close()
			return nil, refusal.Store(path, "cannot lock", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
