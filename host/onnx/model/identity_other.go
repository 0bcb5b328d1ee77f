//go:build !linux

package model

import "io/fs"

func identityOf(info fs.FileInfo) Identity {
	return Identity{Size: info.Size(), Modified: info.ModTime().UnixNano(), Changed: info.ModTime().UnixNano()}
}
