package session

import (
	"sync"

	"github.com/ebitengine/purego"
)

// trimAbove is how many bytes of weights a session has after whose end free memory is given back to the system.
const trimAbove = 8 << 20

// heapTrim is the address of the C library's malloc_trim, 0 where it has none.
var heapTrim = sync.OnceValue(func() uintptr {
	address, err := purego.Dlsym(purego.RTLD_DEFAULT, "malloc_trim")
	if err != nil {
		return 0
	}
	return address
})

// trim gives memory back to the system that the C library holds free. ONNX Runtime takes weights, panels and chunks of
// arenas from its heaps, and glibc retains holes in these: a process that makes and releases sessions of 90 MB of
// weights came to hold 200 MB of them. It takes some ten milliseconds, a tenth of making such a session.
func trim() {
	if address := heapTrim(); address != 0 {
		purego.SyscallN(address, 0)
	}
}
