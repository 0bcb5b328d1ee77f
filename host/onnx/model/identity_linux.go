package model

import (
	"io/fs"
	"syscall"
)

func identityOf(info fs.FileInfo) Identity {
	i := Identity{Size: info.Size(), Modified: info.ModTime().UnixNano(), Changed: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		i.Device, i.Inode, i.Changed = uint64(s.Dev), s.Ino, s.Ctim.Nano()
	}
	return i
}
