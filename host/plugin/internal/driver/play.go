package driver

import (
	"fmt"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/host/base/diagnostic"
)

// MachineVariable tells tests, and children of theirs, which machine to play: the CUDA of its driver as it
// counts, and its devices, "13000 1"; "none" has no driver.
const MachineVariable = "GRAFT_TEST_MACHINE"

var errNoDriver = &diagnostic.Error{Kind: cuda.ErrNoDriver, Path: "libcuda.so.1", Found: "found no such library",
	Needed: "NVIDIA's driver", Fix: "install it"}

// Play makes this process the machine of a text, until restore is called.
func Play(text string) (restore func()) {
	before := here
	here = played(text)
	return func() { here = before }
}

func played(text string) machine {
	var version cuda.Version
	var devices int
	if _, err := fmt.Sscan(text, &version, &devices); err != nil {
		fail := func() (int, error) { return 0, errNoDriver }
		return machine{version: func() (cuda.Version, error) { return 0, errNoDriver }, devices: fail}
	}
	return machine{
		version: func() (cuda.Version, error) { return version, nil },
		devices: func() (int, error) {
			if devices == 0 {
				return 0, &diagnostic.Error{Kind: cuda.ErrNoDevice, Found: "found a driver without a device", Fix: "see nvidia-smi"}
			}
			return devices, nil
		},
	}
}
