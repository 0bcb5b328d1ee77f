package model

import (
	"io/fs"
	"syscall"
)

func identityOf(info fs.FileInfo) Identity {
	i := Identity{size: info.Size(), modified: info.ModTime().UnixNano(), changed: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		i.device, i.inode, i.changed = uint64(s.Dev), s.Ino, s.Ctim.Nano()
	}
	return i
}
