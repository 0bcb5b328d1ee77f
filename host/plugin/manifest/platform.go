package manifest

import "runtime"

// Platform is where a library would run.
type Platform struct {
	OS, Arch string
}

// ThisPlatform is the one this program runs on.
var ThisPlatform = Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}

// String is "os/arch".
func (p Platform) String() string { return p.OS + "/" + p.Arch }
