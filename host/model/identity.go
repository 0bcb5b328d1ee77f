package model

import (
	"io/fs"
	"os"
	"time"
)

// identity tells the contents of files apart: whoever writes to a file changes the time of its last change,
// which no program can set. The system counts that time in steps.
type identity struct {
	device, inode     uint64
	size              int64
	modified, changed int64 // nanoseconds of Unix time: of the content, and of anything
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

// lasting says whether a file has the identity for so long that no other content can have it, whatever the file
// system counts time in.
func (i identity) lasting() bool { return i.age() > coarse }

// age is the time since the last change.
func (i identity) age() time.Duration { return time.Since(time.Unix(0, i.changed)) }
