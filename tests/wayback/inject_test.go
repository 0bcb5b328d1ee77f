package wayback

import (
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/internal/must"
)

// kind is what an operator does wrong.
type kind string

const (
	fails      kind = "error"
	wrongShape kind = "wrong shape"
)

// customOp is the beginning of OrtCustomOp.
type customOp struct {
	version   uint32
	functions [18]uintptr // the last is KernelComputeV2
}

const kernelComputeV2 = 17

// injector stands between ONNX Runtime and the operators of any plugin's library.
type injector struct {
	t      *testing.T
	table  uintptr // OrtApi
	mu     sync.Mutex
	known  map[uintptr]string // names of operators
	armed  string             // the operator whose next run has a fault
	kind   kind
	fired  bool
	widens bool // the next output gets a wrong shape
}

const (
	slotCreateStatus = 0
	slotGetOutput    = 91
)

func (j *injector) function(slot int) *uintptr {
	return (*uintptr)(unsafe.Add(pointer(j.table), slot*8))
}

// newInjector replaces the function by which operators ask for their outputs.
func newInjector(t *testing.T, l *ort.Library) *injector {
	t.Helper()
	base := must.Value(l.APIBase())(t)
	table, _, _ := purego.SyscallN(*(*uintptr)(pointer(base)), ort.APIVersion)
	j := &injector{t: t, table: table, known: map[uintptr]string{}}
	at := j.function(slotGetOutput)
	page := uintptr(syscall.Getpagesize())
	start := uintptr(unsafe.Pointer(at)) &^ (page - 1)
	must.Succeed(t, syscall.Mprotect(unsafe.Slice((*byte)(pointer(start)), page),
		syscall.PROT_READ|syscall.PROT_WRITE))
	original := *at
	*at = purego.NewCallback(func(context, index, dims, n, out uintptr) uintptr {
		j.mu.Lock()
		widen := j.widens && n > 0
		if widen {
			j.widens, j.fired = false, true
		}
		j.mu.Unlock()
		if widen {
			list := slices.Clone(unsafe.Slice((*int64)(pointer(dims)), n))
			list[n-1]++
			var pin runtime.Pinner
			defer pin.Unpin()
			pin.Pin(&list[0])
			dims = uintptr(unsafe.Pointer(&list[0]))
		}
		status, _, _ := purego.SyscallN(original, context, index, dims, n, out)
		return status
	})
	t.Cleanup(func() { *at = original })
	return j
}

// take stands before the operators of a session, and names them.
func (j *injector) take(domains []operator.Domain) (names []string) {
	for _, d := range domains {
		for _, at := range d.Operators {
			name := operator.Name(at)
			names = append(names, name)
			if j.known[at] != "" {
				continue
			}
			j.known[at] = name
			op := (*customOp)(pointer(at))
			original := op.functions[kernelComputeV2]
			op.functions[kernelComputeV2] = purego.NewCallback(func(kernel, context uintptr) uintptr {
				j.mu.Lock()
				hit := j.armed == name
				if hit {
					j.armed = ""
					j.widens, j.fired = j.kind == wrongShape, j.kind == fails
				}
				j.mu.Unlock()
				status, _, _ := purego.SyscallN(original, kernel, context)
				if hit && j.kind == fails && status == 0 { // all was written, and is to be forgotten
					text := append([]byte("made to fail"), 0)
					status, _, _ = purego.SyscallN(*j.function(slotCreateStatus), 1, uintptr(unsafe.Pointer(&text[0])))
				}
				return status
			})
			j.t.Cleanup(func() { op.functions[kernelComputeV2] = original })
		}
	}
	return names
}

// arm has the next run of an operator go wrong.
func (j *injector) arm(operator string, k kind) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed, j.kind, j.fired = operator, k, false
}

// disarm reports whether it did.
func (j *injector) disarm() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed, j.widens = "", false
	return j.fired
}

// pointer is an address of C memory.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
