package worker

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// processCalls are those of this machine alone.
var processCalls = []uint32{unix.SYS_KEXEC_FILE_LOAD}
