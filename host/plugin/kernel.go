package plugin

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Kernel is a plugin's object for one node, called directly, without ONNX Runtime. Infer, Workspace and
// Run may run at once on several goroutines; Destroy only when none of them does.
type Kernel struct {
	plugin  *Plugin
	op      *signature.Operator
	address uintptr
	once    sync.Once
	// What create got to see stays valid until destroy.
	constants []*tensor.Tensor
	pins      runtime.Pinner
}

// Create makes a kernel. constants has one entry an input, nil where the input is not constant; nil for
// none at all. Constants must stay unchanged until Destroy.
func (p *Plugin) Create(operator string, attributes []manifest.Attribute, constants []*tensor.Tensor,
	device tensor.Device) (*Kernel, error) {
	op, index, ok := p.Info.Operator(operator)
	if !ok {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: p.Path,
			Found:  fmt.Sprintf("found no operator %q", operator),
			Needed: "one of " + strings.Join(p.operatorNames(), ", ")}
	}
	what := "create of " + operator
	if err := p.elsewhere(what); err != nil {
		return nil, err
	}
	where, err := device.ABI()
	if err != nil {
		return nil, p.misuse(what, err)
	}
	attrs, err := cAttributes(attributes)
	if err != nil {
		return nil, p.misuse(what, err)
	}
	consts, err := cTensors(constants, "constant")
	if err != nil {
		return nil, p.misuse(what, err)
	}
	k := &Kernel{plugin: p, op: op, constants: constants}
	for _, c := range consts {
		if c != nil {
			k.pins.Pin(c)
		}
	}
	request := &abi.CreateRequest{
		Size: uint64(unsafe.Sizeof(abi.CreateRequest{})), OperatorIndex: uint32(index), Device: where,
		Attributes: unsafe.SliceData(attrs), NumAttributes: uint32(len(attrs)),
		Constants: unsafe.SliceData(consts), NumConstants: uint32(len(consts)),
	}
	out := new(uintptr)
	err = p.invoke(what, p.table.Create, newMessage(), uintptr(unsafe.Pointer(request)), uintptr(unsafe.Pointer(out)))
	runtime.KeepAlive(attributes)
	if err == nil && *out == 0 {
		err = &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path, Found: what + " gave no kernel and no error"}
	}
	if err != nil {
		k.pins.Unpin()
		return nil, err
	}
	k.address = *out
	return k, nil
}

func (p *Plugin) operatorNames() []string {
	var names []string
	for _, op := range p.Info.Operators {
		names = append(names, op.Name)
	}
	return names
}

// misuse is an error of the caller's, found before the plugin was called.
func (p *Plugin) misuse(what string, err error) error {
	return &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path, Found: what + ": " + err.Error(), Cause: err}
}

// Infer gives types and shapes of the outputs for those of the inputs. Inputs may lack Data and, with
// sizes below 0, knowledge; nil is an absent input. wanted says which outputs are asked for; the others
// come back nil.
func (k *Kernel) Infer(inputs []*tensor.Tensor, wanted []bool) ([]*tensor.Tensor, error) {
	what := "infer_shapes of " + k.op.Name
	in, err := cTensors(inputs, "input")
	if err != nil {
		return nil, k.plugin.misuse(what, err)
	}
	out := make([]*abi.Tensor, len(wanted))
	shapes := make([][]int64, len(wanted))
	for i, want := range wanted {
		if want {
			shapes[i] = make([]int64, abi.MaxRank)
			out[i] = &abi.Tensor{Device: abi.Device{Type: abi.DeviceCPU}, Ndim: -1, Shape: &shapes[i][0]}
		}
	}
	err = k.plugin.invoke(what, k.plugin.table.InferShapes, newMessage(), k.address,
		uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)), uintptr(unsafe.Pointer(unsafe.SliceData(out))),
		uintptr(len(out)))
	runtime.KeepAlive(inputs)
	if err != nil {
		return nil, err
	}
	result := make([]*tensor.Tensor, len(wanted))
	for i, c := range out {
		if c == nil {
			continue
		}
		dtype, ok := tensor.DTypeOf(c.Dtype)
		if !ok || c.Ndim < 0 || c.Ndim > abi.MaxRank {
			return nil, &diagnostic.Error{Kind: refusal.ErrKernel, Path: k.plugin.Path,
				Found: fmt.Sprintf("%s gave output %d type code %d with %d bits and rank %d",
					what, i, c.Dtype.Code, c.Dtype.Bits, c.Ndim)}
		}
		result[i] = &tensor.Tensor{DType: dtype, Shape: slices.Clone(shapes[i][:c.Ndim])}
	}
	return result, nil
}

// Workspace is the bytes of scratch memory that Run needs for these shapes on `concurrency` threads.
func (k *Kernel) Workspace(inputs, outputs []*tensor.Tensor, concurrency int) (uint64, error) {
	what := "workspace_size of " + k.op.Name
	in, err := cTensors(inputs, "input")
	if err != nil {
		return 0, k.plugin.misuse(what, err)
	}
	out, err := cTensors(outputs, "output")
	if err != nil {
		return 0, k.plugin.misuse(what, err)
	}
	size := new(uint64)
	err = k.plugin.invoke(what, k.plugin.table.WorkspaceSize, newMessage(), k.address,
		uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)), uintptr(unsafe.Pointer(unsafe.SliceData(out))),
		uintptr(len(out)),
		uintptr(concurrency), uintptr(unsafe.Pointer(size)))
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(outputs)
	return *size, err
}

// RunContext is what a run may use besides its tensors.
type RunContext struct {
	// Stream is a CUstream; 0 on the CPU.
	Stream uintptr
	// Workspace has at least the size that Kernel.Workspace gave; its first byte is aligned to 64, as
	// NewWorkspace makes it. A device's memory is given as WorkspaceAddress and WorkspaceSize instead.
	Workspace        []byte
	WorkspaceAddress uintptr
	WorkspaceSize    uint64
	// Threads is how many goroutines parallel_for uses; below 2 the plugin gets none and loops.
	Threads int
	// Pool runs parallel_for instead, with as many threads as it has, whatever Threads is; nil for none.
	Pool *threads.Pool
	// Log takes the plugin's lines; may be nil. Level is 0 debug, 1 information, 2 warning, 3 error.
	Log func(level int, text string)
}

// NewWorkspace makes scratch memory as RunContext wants it; nil for 0 bytes.
func NewWorkspace(size uint64) []byte {
	if size == 0 {
		return nil
	}
	return tensor.Aligned(int64(size))
}

// Run computes the outputs, whose memory the caller gives.
func (k *Kernel) Run(ctx *RunContext, inputs, outputs []*tensor.Tensor) error {
	what := "run of " + k.op.Name
	in, err := cTensors(inputs, "input")
	if err != nil {
		return k.plugin.misuse(what, err)
	}
	out, err := cTensors(outputs, "output")
	if err != nil {
		return k.plugin.misuse(what, err)
	}
	threads := max(ctx.Threads, 1)
	if ctx.Pool != nil {
		threads = ctx.Pool.Threads()
	}
	c := &abi.RunContext{
		Size: uint64(unsafe.Sizeof(abi.RunContext{})), Stream: unsafe.Pointer(pointer[byte](ctx.Stream)),
		Concurrency: int32(threads),
		Workspace:   unsafe.Pointer(unsafe.SliceData(ctx.Workspace)), WorkspaceSize: uint64(len(ctx.Workspace)),
	}
	if ctx.WorkspaceAddress != 0 {
		c.Workspace, c.WorkspaceSize = unsafe.Pointer(pointer[byte](ctx.WorkspaceAddress)), ctx.WorkspaceSize
	}
	if threads > 1 {
		c.ParallelFor, c.ParallelContext = parallelFor(), unsafe.Pointer(&team{threads: uint64(threads), pool: ctx.Pool})
	}
	if ctx.Log != nil {
		c.Log, c.LogContext = logLine(), unsafe.Pointer(&logger{log: ctx.Log})
	}
	err = k.plugin.invoke(what, k.plugin.table.Run, newMessage(), k.address, uintptr(unsafe.Pointer(c)),
		uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)), uintptr(unsafe.Pointer(unsafe.SliceData(out))),
		uintptr(len(out)))
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(outputs)
	runtime.KeepAlive(ctx)
	return err
}

// Destroy frees the kernel. Further calls do nothing.
func (k *Kernel) Destroy() {
	k.once.Do(func() {
		purego.SyscallN(k.plugin.table.Destroy, k.address)
		k.pins.Unpin()
		k.constants = nil
	})
}
