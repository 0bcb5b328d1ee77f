package hook

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/cmem"
)

// maxSites is how many functions can be watched: two of each ONNX Runtime in the process.
const maxSites = 8

// A site is a function that runs sessions, as its stub reads it: machine code that stands in the function's slot and
// costs a run nothing that can be measured. A callback of Go's in its place would cost a microsecond.
type site struct {
	original uintptr      // ONNX Runtime's own function
	callback uintptr      // of Go, told of runs
	watched  atomic.Int64 // above 0 the callback is told of every run in its place, else of those that failed
	_        uintptr
}

// sites and runStubs are those of the machine code.
var (
	sites    [maxSites]site
	runStubs [maxSites]uintptr
)

// stubs gives sites away. A callback of purego is never freed, and so is no site.
var stubs struct {
	sync.Mutex
	callback uintptr
	tell     [maxSites]atomic.Pointer[func(*frame) uintptr]
	n        int
}

func runStub()
func runStub0()
func runStub1()
func runStub2()
func runStub3()
func runStub4()
func runStub5()
func runStub6()
func runStub7()

// Only the machine code names them.
var _ = [...]func(){runStub, runStub0, runStub1, runStub2, runStub3, runStub4, runStub5, runStub6, runStub7}

// stub makes machine code that calls original. tell is called when a run failed or the site is watched, on the thread
// that runs, and gives the OrtStatus that the program gets. There is none left where ok is false.
func stub(original uintptr, tell func(*frame) uintptr) (code uintptr, s *site, ok bool) {
	stubs.Lock()
	defer stubs.Unlock()
	if stubs.n == maxSites {
		return 0, nil, false
	}
	if stubs.callback == 0 {
		stubs.callback = purego.NewCallback(func(at uintptr) uintptr {
			f := (*frame)(cmem.Pointer(at))
			return (*stubs.tell[(f.site-uintptr(unsafe.Pointer(&sites[0])))/unsafe.Sizeof(sites[0])].Load())(f)
		})
	}
	i := stubs.n
	stubs.n++
	stubs.tell[i].Store(&tell)
	s = &sites[i]
	s.original, s.callback = original, stubs.callback
	return runStubs[i], s, true
}
