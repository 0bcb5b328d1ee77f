//go:build !linux

package model

import "io/fs"

func identityOf(info fs.FileInfo) Identity {
	return Identity{size: info.Size(), modified: info.ModTime().UnixNano(), changed: info.ModTime().UnixNano()}
}
