package model

import (
	"io/fs"
	"os"
	"time"
)

// Identity tells the contents of files apart: whoever writes to a file changes the time of its last change,
// which no program can set. The system counts that time in steps.
type Identity struct {
	Device, Inode     uint64
	Size              int64
	Modified, Changed int64 // nanoseconds of Unix time: of the content, and of anything
}

const (
	// step is above the steps of local file systems: a file that changed within one may change again unseen.
	step = 12 * time.Millisecond
	// coarse is above those of all others.
	coarse = 3 * time.Second
)

// settled looks at a file that has not changed just now: then whatever happens to it from now on shows. A file
// that is being written is given up on soon.
func settled(path string) (fs.FileInfo, error) {
	for try := 0; ; try++ {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || try == 4 {
			return info, err
		}
		age := identityOf(info).age()
		if age < 0 || age >= step {
			return info, nil
		}
		time.Sleep(step - age)
	}
}

// Lasting says whether a file has the identity for so long that no other content can have it, whatever the file
// system counts time in.
func (i Identity) Lasting() bool { return i.age() > coarse }

// age is the time since the last change.
func (i Identity) age() time.Duration { return time.Since(time.Unix(0, i.Changed)) }

// IdentityOf is the identity of a file by what is known of it.
func IdentityOf(info fs.FileInfo) Identity { return identityOf(info) }

// Look is the identity of a file, or of whatever a path leads to. A file that changed just now is waited for, for
// milliseconds.
func Look(path string) (Identity, error) {
	info, err := settled(path)
	if err != nil {
		return Identity{}, err
	}
	return identityOf(info), nil
}
