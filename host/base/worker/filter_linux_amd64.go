package worker

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// processCalls are those of this machine alone.
var processCalls = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD}
