package languages

import (
	"os"
	"syscall"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Exec has a program take this process's place. It returns only where that fails.
func Exec(path string, args, environ []string) error {
	err := syscall.Exec(path, args, environ)
	return &diagnostic.Error{Path: path, Found: "cannot be run: " + err.Error(),
		Needed: "a program for this machine, or a script that begins with #! and its interpreter", Cause: err}
}

// privileged reports that a program gets rights that its caller has not, whereupon the dynamic linker preloads nothing.
func privileged(path string, f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if info.Mode()&os.ModeSetuid != 0 && int(owner.Uid) != os.Getuid() ||
		info.Mode()&os.ModeSetgid != 0 && int(owner.Gid) != os.Getgid() {
		return true
	}
	size, err := syscall.Getxattr(path, "security.capability", nil)
	return err == nil && size > 0 && os.Getuid() != 0
}
