//go:build unix

package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// TryLock takes an advisory lock that the kernel drops when the process ends. ok is false when another
// process, or another open file of this one, has it.
func TryLock(f *os.File) (ok bool, err error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// claim locks a file that this process has just made. mine is false where another process took it for that of a dead
// one before it was locked.
func claim(f *os.File) (mine bool, err error) {
	if mine, err = TryLock(f); err != nil || !mine {
		return false, err
	}
	var stat unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &stat)
	return err == nil && stat.Nlink > 0, err
}

// Lock makes, opens and locks a file, waiting while others have it; waiting, if not nil, is called once when that is
// so. Closing the file unlocks it. It stays: were it removed, two processes could lock two files of one name.
func Lock(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := TryLock(f)
		if ok {
			return f, nil
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
