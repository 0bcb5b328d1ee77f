//go:build unix

package plugin

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// tryLock takes an advisory lock that the kernel drops when the process ends. ok is false when another
// process, or another open file of this one, has it.
func tryLock(f *os.File) (ok bool, err error) {
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

// lockFile opens and locks a file, waiting while others have it. Closing the file unlocks it.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, storeError(path, "cannot make the lock file", err)
	}
	for {
		ok, err := tryLock(f)
		if ok {
			return f, nil
		}
		if err != nil {
			f.Close()
			return nil, storeError(path, "cannot lock", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
