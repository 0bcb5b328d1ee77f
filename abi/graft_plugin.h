/* graft_plugin.h: the C ABI between a host that rewrites ONNX models and a plugin that brings
 * operators.
 *
 * A plugin is a shared library that exports one symbol of this header, graft_plugin_v1, which
 * returns a table of functions. The number in the symbol is the major version.
 *
 * Rules that keep old and new binaries together
 *   - Every struct begins with its size in bytes, as its maker compiled it, and a pointer to a
 * chain of extensions. A reader touches a member only if the size covers it, and skips extensions
 * whose name it does not know. graft_tensor and its two parts are the one exception: they are
 * DLPack's.
 *   - Members and functions are only ever appended; each append raises GRAFT_ABI_MINOR. Anything
 * else raises GRAFT_ABI_MAJOR and the symbol's name.
 *   - A plugin fits a host when the majors are equal and the plugin's minor is not above the
 * host's.
 *   - Members are fixed-width integers, doubles, pointers and function pointers, with explicit
 * padding, so that a mirror in another language can be generated from this file. Arrays hold
 * pointers to structs, never structs, so that an element may grow.
 *   - Padding and reserved members are zero.
 *
 * Rules of ownership
 *   - What the host passes belongs to the host and is valid until the call returns, unless said
 * otherwise.
 *   - What describe and the table point to belongs to the plugin and is valid until the library is
 * unloaded.
 *   - Strings are UTF-8 and end with a zero byte.
 *
 * Rules of failure
 *   - Functions return GRAFT_OK or another GRAFT_* code, and then put a text into the caller's
 * message.
 *   - No C++ exception and no longjmp crosses this interface; a plugin never ends the process.
 */
#ifndef GRAFT_PLUGIN_H_
#define GRAFT_PLUGIN_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRAFT_ABI_MAJOR 1
#define GRAFT_ABI_MINOR 0

/* Codes that functions return. */
#define GRAFT_OK 0
#define GRAFT_ERROR_INVALID_ARGUMENT 1 /* the request contradicts the operator's description */
#define GRAFT_ERROR_UNSUPPORTED 2      /* a legal request beyond this build or machine */
#define GRAFT_ERROR_OUT_OF_MEMORY 3
#define GRAFT_ERROR_DEVICE 4   /* the device or its driver failed */
#define GRAFT_ERROR_INTERNAL 5 /* anything else, an escaped C++ exception among them */
#define GRAFT_REFUSED 6        /* fold only: the constants do not qualify; nothing is wrong */

/* Device types, numbered as in DLPack. */
#define GRAFT_DEVICE_CPU 1
#define GRAFT_DEVICE_CUDA 2

/* Type codes of graft_data_type, numbered as in DLPack. */
#define GRAFT_TYPE_INT 0
#define GRAFT_TYPE_UINT 1
#define GRAFT_TYPE_FLOAT 2
#define GRAFT_TYPE_BFLOAT 4
#define GRAFT_TYPE_BOOL 6

/* The most dimensions a tensor may have. */
#define GRAFT_MAX_RANK 16

/* A size along one axis that is not known yet; only where infer_shapes allows it. Any negative size
 * is unknown; equal ones below -1 stand for the same unknown size, as a symbol in a model does. */
#define GRAFT_UNKNOWN_DIM (-1)

/* Flags of graft_parameter. */
#define GRAFT_PARAMETER_OPTIONAL 1    /* may be absent: a null tensor pointer */
#define GRAFT_PARAMETER_VARIADIC 2    /* last parameter only: min_count or more tensors */
#define GRAFT_PARAMETER_STRIDED 4     /* input only: need not be compact; strides are honoured */
#define GRAFT_PARAMETER_HOST_MEMORY 8 /* lies in host memory whatever the plugin's device */

/* Kinds of graft_attribute. */
#define GRAFT_ATTRIBUTE_INT 1
#define GRAFT_ATTRIBUTE_FLOAT 2
#define GRAFT_ATTRIBUTE_STRING 3
#define GRAFT_ATTRIBUTE_INTS 4
#define GRAFT_ATTRIBUTE_FLOATS 5

/* Flags of graft_attribute. */
#define GRAFT_ATTRIBUTE_REQUIRED 1 /* in a description: has no default */

/* Levels of a log line. */
#define GRAFT_LOG_DEBUG 0
#define GRAFT_LOG_INFO 1
#define GRAFT_LOG_WARNING 2
#define GRAFT_LOG_ERROR 3

/* The ELF note that states what a plugin needs without running it: section .note.graft, this owner
 * and type, and a payload of UTF-8 lines "key=value". Keys: abi (major.minor), name, version,
 * device (cpu or cuda), os, arch, isa (comma-separated instruction sets that the library dispatches
 * among; the first is its baseline), sm (comma-separated SM versions, cuda only), cuda (CUDA major,
 * cuda only). */
#define GRAFT_NOTE_SECTION ".note.graft"
#define GRAFT_NOTE_OWNER "graft"
#define GRAFT_NOTE_TYPE 1

/* The ONNX domain of plugin operators. */
#define GRAFT_ONNX_DOMAIN "graft"

/* Name of the extension of graft_plugin that hands out ONNX Runtime custom operators. */
#define GRAFT_EXTENSION_ORT_OPS "graft.ort_ops"

/* The session config entry through which libraries share one domain; see graft_ort_registrar. */
#define GRAFT_ORT_DOMAIN_KEY "graft.domain.v1"

/* The exported symbol. */
#define GRAFT_PLUGIN_SYMBOL "graft_plugin_v1"

/* Head of every extension: what `next` members point to. The name says which struct follows. */
typedef struct graft_extension {
  uint64_t size;
  const struct graft_extension* next;
  const char* name;
} graft_extension;

/* DLDevice of DLPack 1.0. */
typedef struct graft_device {
  int32_t type; /* GRAFT_DEVICE_* */
  int32_t id;
} graft_device;

/* DLDataType of DLPack 1.0. */
typedef struct graft_data_type {
  uint8_t code;   /* GRAFT_TYPE_* */
  uint8_t bits;   /* 8 for bool */
  uint16_t lanes; /* always 1 */
} graft_data_type;

/* DLTensor of DLPack 1.0: the first element lies at data + byte_offset; strides count elements, and
 * null strides mean compact, row-major. Rank 0 is a scalar; any size may be 0, and data may then be
 * null. The address is a multiple of the element's size; more alignment is not promised. */
typedef struct graft_tensor {
  void* data;
  graft_device device;
  int32_t ndim;
  graft_data_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} graft_tensor;

/* Where a failing function writes why: at most capacity bytes with the closing zero, cut if longer.
 * The caller owns the buffer. A null graft_message pointer, or a null text, asks for no text. */
typedef struct graft_message {
  uint64_t size;
  const graft_extension* next;
  char* text;
  uint64_t capacity;
} graft_message;

/* One input or output of an operator. Types lists what it may hold. Parameters with the same
 * type_variable (0 or above) hold the same type in one node and list the same types; -1: on its
 * own. */
typedef struct graft_parameter {
  uint64_t size;
  const graft_extension* next;
  const char* name;
  const graft_data_type* types;
  uint32_t num_types;
  int32_t type_variable;
  uint32_t flags;     /* GRAFT_PARAMETER_* */
  uint32_t min_count; /* variadic only: the fewest tensors it stands for */
} graft_parameter;

/* An attribute's value, or in a description its name, kind and default. */
typedef struct graft_attribute {
  uint64_t size;
  const graft_extension* next;
  const char* name;
  int32_t kind;       /* GRAFT_ATTRIBUTE_* */
  uint32_t flags;     /* GRAFT_ATTRIBUTE_REQUIRED */
  int64_t int_value;  /* INT */
  double float_value; /* FLOAT */
  const void* data;   /* STRING: char, with a closing zero; INTS: int64_t; FLOATS: float */
  uint64_t count;     /* elements of data, the closing zero not counted */
} graft_attribute;

/* An operator's signature. */
typedef struct graft_operator {
  uint64_t size;
  const graft_extension* next;
  const char* name; /* the ONNX op_type in domain "graft" */
  const char* summary;
  const graft_parameter* const* inputs;
  const graft_parameter* const* outputs;
  const graft_attribute* const* attributes;
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t num_attributes;
  int32_t since_version; /* of the operator, 1 at first */
} graft_operator;

/* What a library is. Name and version equal those in plugin.yaml and in the ELF note. */
typedef struct graft_plugin_info {
  uint64_t size;
  const graft_extension* next;
  const char* name;
  const char* version;
  const char* summary;
  int32_t device_type; /* GRAFT_DEVICE_*: where the operators run */
  uint32_t num_operators;
  const graft_operator* const* operators;
} graft_plugin_info;

/* A plugin's answer about one device. */
typedef struct graft_probe_result {
  uint64_t size;
  const graft_extension* next;
  int32_t score; /* 0: cannot run here; else up to 100, higher is better suited */
  uint32_t reserved;
} graft_probe_result;

/* A constant with the name that the plugin's manifest captured it under. */
typedef struct graft_named_tensor {
  uint64_t size;
  const graft_extension* next;
  const char* name;
  const graft_tensor* tensor;
} graft_named_tensor;

/* Constants from the model, and where to put what is computed from them. Floating-point constants
 * come as float64, integer and boolean ones as int64, all compact and on the host. emit takes one
 * result, float64 or int64, compact, on the host; the receiver copies it before it returns, and
 * converts it to the type that the graph needs. A non-zero answer of emit ends the fold: return
 * that code. */
typedef struct graft_fold_request {
  uint64_t size;
  const graft_extension* next;
  const char* operator_name; /* `name` of the entry under `operators` in plugin.yaml */
  const graft_named_tensor* const* constants;
  const graft_attribute* const* attributes;
  uint32_t num_constants;
  uint32_t num_attributes;
  int32_t (*emit)(void* emit_context, const char* name, const graft_tensor* tensor);
  void* emit_context;
} graft_fold_request;

/* What a kernel is made from. Attributes that are not given have their default. constants has an
 * entry an input, null where the input is absent or not constant; those given stay valid until
 * destroy. */
typedef struct graft_create_request {
  uint64_t size;
  const graft_extension* next;
  uint32_t operator_index; /* into graft_plugin_info.operators */
  uint32_t num_attributes;
  const graft_attribute* const* attributes;
  const graft_tensor* const* constants;
  uint32_t num_constants;
  graft_device device;
  uint32_t reserved;
} graft_create_request;

/* What a run may use besides its tensors. parallel_for calls task(task_context, i) for every i in
 * [0, count), possibly at once on several threads, and returns when all are done; null means that
 * there are no further threads: loop. Tasks must not call parallel_for. log may be null. */
typedef struct graft_run_context {
  uint64_t size;
  const graft_extension* next;
  void* stream;            /* CUDA: a CUstream; CPU: null */
  void* workspace;         /* 64-byte aligned, uninitialised; null when workspace_size is 0 */
  uint64_t workspace_size; /* at least what workspace_size asked for */
  int32_t (*parallel_for)(void* parallel_context, uint64_t count, void (*task)(void*, uint64_t),
                          void* task_context);
  void* parallel_context;
  void (*log)(void* log_context, int32_t level, const char* text);
  void* log_context;
  int32_t concurrency; /* threads that parallel_for is likely to use; 0: not known */
  uint32_t reserved;
} graft_run_context;

/* The table of functions. Any of them but fold must be present; fold may be null.
 *
 * A kernel is the plugin's object for one node of one session, opaque to the host. */
typedef struct graft_plugin {
  uint64_t size;
  const graft_extension* next; /* graft_ort_ops hangs here */
  uint32_t abi_major;          /* GRAFT_ABI_MAJOR as compiled */
  uint32_t abi_minor;

  /* States what the library is. Any thread, any time; always the same answer; touches no device.
   * Null where its operators cannot be described, as when code that does so throws: probe then
   * fails, and says why. */
  const graft_plugin_info* (*describe)(void);

  /* Says how well the plugin suits a device. When score is 0 the message says why and what would
   * fix it. Any thread. May load a driver, must not leave a context current. */
  int32_t (*probe)(const graft_device* device, graft_probe_result* result, graft_message* message);

  /* Computes weights from weights, in float64, when a plan is applied. GRAFT_REFUSED with a text
   * when the constants do not qualify. Any thread, several at once. */
  int32_t (*fold)(const graft_fold_request* request, graft_message* message);

  /* Makes a kernel. Must be cheap: a host may make one just to infer shapes. Any thread, several at
   * once. On success *kernel belongs to the host until destroy. */
  int32_t (*create)(const graft_create_request* request, void** kernel, graft_message* message);

  /* Computes types and shapes of outputs from those of inputs. Tensors have no data; an absent
   * input or output is null; ranks are known; sizes of inputs may be unknown (see
   * GRAFT_UNKNOWN_DIM), and so may then those of outputs. The caller owns the outputs and gives
   * each a shape array of GRAFT_MAX_RANK; the plugin writes dtype, ndim and shape of each one, or
   * fails where it makes no such output. Any thread, several at once on one kernel. */
  int32_t (*infer_shapes)(const void* kernel, const graft_tensor* const* inputs,
                          uint64_t num_inputs, graft_tensor* const* outputs, uint64_t num_outputs,
                          graft_message* message);

  /* States how many bytes of workspace a run with these shapes needs, for `concurrency` threads as
   * in graft_run_context. Tensors have no data, all sizes are known. Any thread, several at once.
   */
  int32_t (*workspace_size)(const void* kernel, const graft_tensor* const* inputs,
                            uint64_t num_inputs, const graft_tensor* const* outputs,
                            uint64_t num_outputs, int32_t concurrency, uint64_t* bytes,
                            graft_message* message);

  /* Computes outputs from inputs. Outputs have the shapes that infer_shapes gave, are compact, and
   * do not overlap inputs or each other. On CUDA the work is enqueued on the stream and the
   * function returns without waiting. Any thread, several at once on one kernel, each with its own
   * context. */
  int32_t (*run)(const void* kernel, const graft_run_context* context,
                 const graft_tensor* const* inputs, uint64_t num_inputs,
                 graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message);

  /* Frees a kernel; null does nothing. No other call on that kernel may be in flight or follow. */
  void (*destroy)(void* kernel);
} graft_plugin;

/* Extension of graft_plugin, named GRAFT_EXTENSION_ORT_OPS: the operators as ONNX Runtime custom
 * operators (const OrtCustomOp*, version 18), for a host that builds the session's domain "graft"
 * itself. ort_api_base is the runtime's OrtApiBase. The array and what it points to live until the
 * library is unloaded; the same runtime always gets the same array. Any thread. */
typedef struct graft_ort_ops {
  uint64_t size;
  const graft_extension* next;
  const char* name;
  int32_t (*get)(const void* ort_api_base, const void* const** ops, uint64_t* num_ops,
                 graft_message* message);
} graft_ort_ops;

/* Who adds operators to the domain "graft" of some session options. ONNX Runtime takes a domain
 * name once a session, so the library whose RegisterCustomOps comes first makes the domain, and
 * leaves the address of this struct, "0x" and hexadecimal digits, in the options' config entry
 * GRAFT_ORT_DOMAIN_KEY; later ones read it and call join. ops are const OrtCustomOp* and must never
 * be unloaded. Operators of the same plugin that are there already are passed over; a name that
 * another plugin took is refused. Any thread; but no session may be in flight from the same options
 * or their clones. The struct lives as long as the process. */
typedef struct graft_ort_registrar {
  uint64_t size;
  const graft_extension* next;
  int32_t (*join)(const struct graft_ort_registrar* registrar, const char* plugin,
                  const void* const* ops, uint64_t num_ops, graft_message* message);
  void* domain; /* OrtCustomOpDomain */
} graft_ort_registrar;

/* The exported function: the table, the same at every call, never null. Any thread, any time. */
const graft_plugin* graft_plugin_v1(void);

#ifdef __cplusplus
}
#endif

#endif /* GRAFT_PLUGIN_H_ */
