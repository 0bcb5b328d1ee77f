package memory

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Seal adds seals to a memory file. The kernel may still hold pages that were just written, above all on a machine
// under load, and then says that the file is busy: Seal waits and tries again, some seconds at most.
func Seal(file uintptr, seals int) error {
	for try := range 30 {
		if _, err := unix.FcntlInt(file, unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
	return unix.EBUSY
}
