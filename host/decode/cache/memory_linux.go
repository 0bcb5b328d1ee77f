package cache

import "syscall"

const noReserve = syscall.MAP_NORESERVE
