// Code generated from abi/graft_plugin.h by abi/gen. DO NOT EDIT.

package abi

import "unsafe"

// The macros of the header.
const (
	ABIMajor = 1
	ABIMinor = 0

	// Codes that functions return.
	OK                   = 0
	ErrorInvalidArgument = 1 // the request contradicts the operator's description
	ErrorUnsupported     = 2 // a legal request beyond this build or machine
	ErrorOutOfMemory     = 3
	ErrorDevice          = 4 // the device or its driver failed
	ErrorInternal        = 5 // anything else, an escaped C++ exception among them
	Refused              = 6 // fold only: the constants do not qualify; nothing is wrong

	// Device types, numbered as in DLPack.
	DeviceCPU  = 1
	DeviceCUDA = 2

	// Type codes of graft_data_type, numbered as in DLPack.
	TypeInt    = 0
	TypeUint   = 1
	TypeFloat  = 2
	TypeBFloat = 4
	TypeBool   = 6

	// The most dimensions a tensor may have.
	MaxRank = 16

	// A size along one axis that is not known yet; only where infer_shapes allows it. Any negative size
	// is unknown; equal ones below -1 stand for the same unknown size, as a symbol in a model does.
	UnknownDim = -1

	// Flags of graft_parameter.
	ParameterOptional   = 1 // may be absent: a null tensor pointer
	ParameterVariadic   = 2 // last parameter only: min_count or more tensors
	ParameterStrided    = 4 // input only: need not be compact; strides are honoured
	ParameterHostMemory = 8 // lies in host memory whatever the plugin's device

	// Kinds of graft_attribute.
	AttributeInt    = 1
	AttributeFloat  = 2
	AttributeString = 3
	AttributeInts   = 4
	AttributeFloats = 5

	// Flags of graft_attribute.
	AttributeRequired = 1 // in a description: has no default

	// Levels of a log line.
	LogDebug   = 0
	LogInfo    = 1
	LogWarning = 2
	LogError   = 3

	// The ELF note that states what a plugin needs without running it: section .note.graft, this owner
	// and type, and a payload of UTF-8 lines "key=value". Keys: abi (major.minor), name, version,
	// device (cpu or cuda), os, arch, isa (comma-separated instruction sets that the library dispatches
	// among; the first is its baseline), sm (comma-separated SM versions, cuda only), cuda (CUDA major,
	// cuda only).
	NoteSection = ".note.graft"
	NoteOwner   = "graft"
	NoteType    = 1

	// The ONNX domain of plugin operators.
	ONNXDomain = "graft"

	// Name of the extension of graft_plugin that hands out ONNX Runtime custom operators.
	ExtensionORTOps = "graft.ort_ops"

	// The session config entry through which libraries share one domain; see graft_ort_registrar.
	ORTDomainKey = "graft.domain.v1"

	// The exported symbol.
	PluginSymbol = "graft_plugin_v1"
)

// Extension mirrors graft_extension.
//
// Head of every extension: what `next` members point to. The name says which struct follows.
type Extension struct {
	Size uint64
	Next *Extension
	Name *byte
}

// Device mirrors graft_device.
//
// DLDevice of DLPack 1.0.
type Device struct {
	Type int32 // GRAFT_DEVICE_*
	ID   int32
}

// DataType mirrors graft_data_type.
//
// DLDataType of DLPack 1.0.
type DataType struct {
	Code  uint8  // GRAFT_TYPE_*
	Bits  uint8  // 8 for bool
	Lanes uint16 // always 1
}

// Tensor mirrors graft_tensor.
//
// DLTensor of DLPack 1.0: the first element lies at data + byte_offset; strides count elements, and
// null strides mean compact, row-major. Rank 0 is a scalar; any size may be 0, and data may then be
// null. The address is a multiple of the element's size; more alignment is not promised.
type Tensor struct {
	Data       unsafe.Pointer
	Device     Device
	Ndim       int32
	Dtype      DataType
	Shape      *int64
	Strides    *int64
	ByteOffset uint64
}

// Message mirrors graft_message.
//
// Where a failing function writes why: at most capacity bytes with the closing zero, cut if longer.
// The caller owns the buffer. A null graft_message pointer, or a null text, asks for no text.
type Message struct {
	Size     uint64
	Next     *Extension
	Text     *byte
	Capacity uint64
}

// Parameter mirrors graft_parameter.
//
// One input or output of an operator. Types lists what it may hold. Parameters with the same
// type_variable (0 or above) hold the same type in one node and list the same types; -1: on its
// own.
type Parameter struct {
	Size         uint64
	Next         *Extension
	Name         *byte
	Types        *DataType
	NumTypes     uint32
	TypeVariable int32
	Flags        uint32 // GRAFT_PARAMETER_*
	MinCount     uint32 // variadic only: the fewest tensors it stands for
}

// Attribute mirrors graft_attribute.
//
// An attribute's value, or in a description its name, kind and default.
type Attribute struct {
	Size       uint64
	Next       *Extension
	Name       *byte
	Kind       int32          // GRAFT_ATTRIBUTE_*
	Flags      uint32         // GRAFT_ATTRIBUTE_REQUIRED
	IntValue   int64          // INT
	FloatValue float64        // FLOAT
	Data       unsafe.Pointer // STRING: char, with a closing zero; INTS: int64_t; FLOATS: float
	Count      uint64         // elements of data, the closing zero not counted
}

// Operator mirrors graft_operator.
//
// An operator's signature.
type Operator struct {
	Size          uint64
	Next          *Extension
	Name          *byte // the ONNX op_type in domain "graft"
	Summary       *byte
	Inputs        **Parameter
	Outputs       **Parameter
	Attributes    **Attribute
	NumInputs     uint32
	NumOutputs    uint32
	NumAttributes uint32
	SinceVersion  int32 // of the operator, 1 at first
}

// PluginInfo mirrors graft_plugin_info.
//
// What a library is. Name and version equal those in plugin.yaml and in the ELF note.
type PluginInfo struct {
	Size         uint64
	Next         *Extension
	Name         *byte
	Version      *byte
	Summary      *byte
	DeviceType   int32 // GRAFT_DEVICE_*: where the operators run
	NumOperators uint32
	Operators    **Operator
}

// ProbeResult mirrors graft_probe_result.
//
// A plugin's answer about one device.
type ProbeResult struct {
	Size     uint64
	Next     *Extension
	Score    int32 // 0: cannot run here; else up to 100, higher is better suited
	Reserved uint32
}

// NamedTensor mirrors graft_named_tensor.
//
// A constant with the name that the plugin's manifest captured it under.
type NamedTensor struct {
	Size   uint64
	Next   *Extension
	Name   *byte
	Tensor *Tensor
}

// FoldRequest mirrors graft_fold_request.
//
// Constants from the model, and where to put what is computed from them. Floating-point constants
// come as float64, integer and boolean ones as int64, all compact and on the host. emit takes one
// result, float64 or int64, compact, on the host; the receiver copies it before it returns, and
// converts it to the type that the graph needs. A non-zero answer of emit ends the fold: return
// that code.
type FoldRequest struct {
	Size          uint64
	Next          *Extension
	OperatorName  *byte // `name` of the entry under `operators` in plugin.yaml
	Constants     **NamedTensor
	Attributes    **Attribute
	NumConstants  uint32
	NumAttributes uint32
	// int32_t (*emit)(void* emit_context, const char* name, const graft_tensor* tensor);
	Emit        uintptr
	EmitContext unsafe.Pointer
}

// CreateRequest mirrors graft_create_request.
//
// What a kernel is made from. Attributes that are not given have their default. constants has an
// entry an input, null where the input is absent or not constant; those given stay valid until
// destroy.
type CreateRequest struct {
	Size          uint64
	Next          *Extension
	OperatorIndex uint32 // into graft_plugin_info.operators
	NumAttributes uint32
	Attributes    **Attribute
	Constants     **Tensor
	NumConstants  uint32
	Device        Device
	Reserved      uint32
}

// RunContext mirrors graft_run_context.
//
// What a run may use besides its tensors. parallel_for calls task(task_context, i) for every i in
// [0, count), possibly at once on several threads, and returns when all are done; null means that
// there are no further threads: loop. Tasks must not call parallel_for. log may be null.
type RunContext struct {
	Size          uint64
	Next          *Extension
	Stream        unsafe.Pointer // CUDA: a CUstream; CPU: null
	Workspace     unsafe.Pointer // 64-byte aligned, uninitialised; null when workspace_size is 0
	WorkspaceSize uint64         // at least what workspace_size asked for
	// int32_t (*parallel_for)(void* parallel_context, uint64_t count, void (*task)(void*, uint64_t), void* task_context);
	ParallelFor     uintptr
	ParallelContext unsafe.Pointer
	// void (*log)(void* log_context, int32_t level, const char* text);
	Log         uintptr
	LogContext  unsafe.Pointer
	Concurrency int32 // threads that parallel_for is likely to use; 0: not known
	Reserved    uint32
}

// Plugin mirrors graft_plugin.
//
// The table of functions. Any of them but fold must be present; fold may be null.
//
// A kernel is the plugin's object for one node of one session, opaque to the host.
type Plugin struct {
	Size     uint64
	Next     *Extension // graft_ort_ops hangs here
	ABIMajor uint32     // GRAFT_ABI_MAJOR as compiled
	ABIMinor uint32
	// States what the library is. Any thread, any time; always the same answer; touches no device.
	// Null where its operators cannot be described, as when code that does so throws: probe then
	// fails, and says why.
	//
	// const graft_plugin_info* (*describe)(void);
	Describe uintptr
	// Says how well the plugin suits a device. When score is 0 the message says why and what would
	// fix it. Any thread. May load a driver, must not leave a context current.
	//
	// int32_t (*probe)(const graft_device* device, graft_probe_result* result, graft_message* message);
	Probe uintptr
	// Computes weights from weights, in float64, when a plan is applied. GRAFT_REFUSED with a text
	// when the constants do not qualify. Any thread, several at once.
	//
	// int32_t (*fold)(const graft_fold_request* request, graft_message* message);
	Fold uintptr
	// Makes a kernel. Must be cheap: a host may make one just to infer shapes. Any thread, several at
	// once. On success *kernel belongs to the host until destroy.
	//
	// int32_t (*create)(const graft_create_request* request, void** kernel, graft_message* message);
	Create uintptr
	// Computes types and shapes of outputs from those of inputs. Tensors have no data; an absent
	// input or output is null; ranks are known; sizes of inputs may be unknown (see
	// GRAFT_UNKNOWN_DIM), and so may then those of outputs. The caller owns the outputs and gives
	// each a shape array of GRAFT_MAX_RANK; the plugin writes dtype, ndim and shape of each one, or
	// fails where it makes no such output. Any thread, several at once on one kernel.
	//
	// int32_t (*infer_shapes)(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs, graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message);
	InferShapes uintptr
	// States how many bytes of workspace a run with these shapes needs, for `concurrency` threads as
	// in graft_run_context. Tensors have no data, all sizes are known. Any thread, several at once.
	//
	// int32_t (*workspace_size)(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs, const graft_tensor* const* outputs, uint64_t num_outputs, int32_t concurrency, uint64_t* bytes, graft_message* message);
	WorkspaceSize uintptr
	// Computes outputs from inputs. Outputs have the shapes that infer_shapes gave, are compact, and
	// do not overlap inputs or each other. On CUDA the work is enqueued on the stream and the
	// function returns without waiting. Any thread, several at once on one kernel, each with its own
	// context.
	//
	// int32_t (*run)(const void* kernel, const graft_run_context* context, const graft_tensor* const* inputs, uint64_t num_inputs, graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message);
	Run uintptr
	// Frees a kernel; null does nothing. No other call on that kernel may be in flight or follow.
	//
	// void (*destroy)(void* kernel);
	Destroy uintptr
}

// ORTOps mirrors graft_ort_ops.
//
// Extension of graft_plugin, named GRAFT_EXTENSION_ORT_OPS: the operators as ONNX Runtime custom
// operators (const OrtCustomOp*, version 18), for a host that builds the session's domain "graft"
// itself. ort_api_base is the runtime's OrtApiBase. The array and what it points to live until the
// library is unloaded; the same runtime always gets the same array. Any thread.
type ORTOps struct {
	Size uint64
	Next *Extension
	Name *byte
	// int32_t (*get)(const void* ort_api_base, const void* const** ops, uint64_t* num_ops, graft_message* message);
	Get uintptr
}

// ORTRegistrar mirrors graft_ort_registrar.
//
// Who adds operators to the domain "graft" of some session options. ONNX Runtime takes a domain
// name once a session, so the library whose RegisterCustomOps comes first makes the domain, and
// leaves the address of this struct, "0x" and hexadecimal digits, in the options' config entry
// GRAFT_ORT_DOMAIN_KEY; later ones read it and call join. ops are const OrtCustomOp* and must never
// be unloaded. Operators of the same plugin that are there already are passed over; a name that
// another plugin took is refused. Any thread; but no session may be in flight from the same options
// or their clones. The struct lives as long as the process.
type ORTRegistrar struct {
	Size uint64
	Next *Extension
	// int32_t (*join)(const struct graft_ort_registrar* registrar, const char* plugin, const void* const* ops, uint64_t num_ops, graft_message* message);
	Join   uintptr
	Domain unsafe.Pointer // OrtCustomOpDomain
}
