package cuda

import "fmt"

// Version is a version of CUDA as the driver counts: 1000 times the major plus 10 times the minor number.
type Version int

// RequiredVersion is the oldest CUDA that a driver must support: graft's CUDA variants are compiled with
// CUDA 13.0, whose code and PTX older drivers refuse.
const RequiredVersion Version = 13000

// requiredRelease is the oldest release of NVIDIA's driver that supports RequiredVersion.
const requiredRelease = "580"

// Major is 13 for CUDA 13.0.
func (v Version) Major() int { return int(v) / 1000 }

// Minor is 0 for CUDA 13.0.
func (v Version) Minor() int { return int(v) % 1000 / 10 }

// String is "13.0".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }
