//go:build !linux

package model

import "io/fs"

func identityOf(info fs.FileInfo) identity {
	return identity{size: info.Size(), modified: info.ModTime().UnixNano(), changed: info.ModTime().UnixNano()}
}
