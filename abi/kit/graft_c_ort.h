/* The operators of a plugin in C as ONNX Runtime custom operators, over its table of functions.
 * Included by graft_c.h. */
#ifndef GRAFT_KIT_GRAFT_C_ORT_H_
#define GRAFT_KIT_GRAFT_C_ORT_H_

#include <inttypes.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "graft/ort_api.h"

/* The interface that every runtime of interest has: 1.18 on. */
#define GRAFT_C_ORT_VERSION 18
#define GRAFT_C_MOST_VALUES 64 /* inputs and outputs of a node together */
#define GRAFT_C_MOST_ATTRIBUTES 64

static const struct {
  ONNXTensorElementDataType onnx;
  graft_data_type type;
} graft_c_types[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {GRAFT_TYPE_FLOAT, 32, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, {GRAFT_TYPE_FLOAT, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, {GRAFT_TYPE_FLOAT, 64, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, {GRAFT_TYPE_BFLOAT, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, {GRAFT_TYPE_BOOL, 8, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, {GRAFT_TYPE_INT, 8, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, {GRAFT_TYPE_INT, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, {GRAFT_TYPE_INT, 32, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, {GRAFT_TYPE_INT, 64, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, {GRAFT_TYPE_UINT, 8, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, {GRAFT_TYPE_UINT, 16, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, {GRAFT_TYPE_UINT, 32, 1}},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, {GRAFT_TYPE_UINT, 64, 1}},
};

static inline ONNXTensorElementDataType graft_c_to_onnx(graft_data_type type) {
  for (uint32_t i = 0; i < GRAFT_COUNT(graft_c_types); ++i) {
    if (graft_c_same(graft_c_types[i].type, type)) return graft_c_types[i].onnx;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

static inline int graft_c_from_onnx(ONNXTensorElementDataType onnx, graft_data_type* type) {
  for (uint32_t i = 0; i < GRAFT_COUNT(graft_c_types); ++i) {
    if (graft_c_types[i].onnx != onnx) continue;
    *type = graft_c_types[i].type;
    return 1;
  }
  return 0;
}

/* One overload of an operator: the runtime takes one element type a parameter. */
typedef struct graft_c_op {
  OrtCustomOp base; /* first: the runtime has pointers to it */
  const OrtApi* api;
  const graft_operator* op;
  uint32_t index;
  ONNXTensorElementDataType types[GRAFT_C_MOST_VALUES]; /* of inputs, then of outputs */
} graft_c_op;

static inline const graft_c_op* graft_c_self(const OrtCustomOp* op) {
  return (const graft_c_op*)op;
}

static const char* graft_c_name(const OrtCustomOp* op) { return graft_c_self(op)->op->name; }
static const char* graft_c_provider(const OrtCustomOp* op) {
  (void)op;
  return NULL;
}
static size_t graft_c_inputs(const OrtCustomOp* op) { return graft_c_self(op)->op->num_inputs; }
static size_t graft_c_outputs(const OrtCustomOp* op) { return graft_c_self(op)->op->num_outputs; }
static ONNXTensorElementDataType graft_c_input_type(const OrtCustomOp* op, size_t i) {
  return graft_c_self(op)->types[i];
}
static ONNXTensorElementDataType graft_c_output_type(const OrtCustomOp* op, size_t i) {
  return graft_c_self(op)->types[graft_c_self(op)->op->num_inputs + i];
}
static inline OrtCustomOpInputOutputCharacteristic graft_c_kind(const graft_parameter* p) {
  if ((p->flags & GRAFT_PARAMETER_VARIADIC) != 0) return INPUT_OUTPUT_VARIADIC;
  return (p->flags & GRAFT_PARAMETER_OPTIONAL) != 0 ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
}
static OrtCustomOpInputOutputCharacteristic graft_c_input_kind(const OrtCustomOp* op, size_t i) {
  return graft_c_kind(graft_c_self(op)->op->inputs[i]);
}
static OrtCustomOpInputOutputCharacteristic graft_c_output_kind(const OrtCustomOp* op, size_t i) {
  return graft_c_kind(graft_c_self(op)->op->outputs[i]);
}
static OrtMemType graft_c_memory(const OrtCustomOp* op, size_t i) {
  (void)op, (void)i;
  return OrtMemTypeDefault;
}
static inline int graft_c_least(const graft_parameter* const* list, uint32_t count) {
  return count == 0 ? 0 : (int)list[count - 1]->min_count;
}
static inline int graft_c_alike(const graft_parameter* const* list, uint32_t count) {
  return count == 0 || list[count - 1]->type_variable >= 0 || list[count - 1]->num_types == 1;
}
static int graft_c_least_inputs(const OrtCustomOp* op) {
  return graft_c_least(graft_c_self(op)->op->inputs, graft_c_self(op)->op->num_inputs);
}
static int graft_c_alike_inputs(const OrtCustomOp* op) {
  return graft_c_alike(graft_c_self(op)->op->inputs, graft_c_self(op)->op->num_inputs);
}
static int graft_c_least_outputs(const OrtCustomOp* op) {
  return graft_c_least(graft_c_self(op)->op->outputs, graft_c_self(op)->op->num_outputs);
}
static int graft_c_alike_outputs(const OrtCustomOp* op) {
  return graft_c_alike(graft_c_self(op)->op->outputs, graft_c_self(op)->op->num_outputs);
}
static int graft_c_start(const OrtCustomOp* op) { return graft_c_self(op)->op->since_version; }
static int graft_c_end_version(const OrtCustomOp* op) {
  (void)op;
  return INT32_MAX;
}

/* A failed call of the runtime as a code and a text. */
static inline int32_t graft_c_failed(const OrtApi* api, OrtStatus* status, graft_message* message) {
  if (status == NULL) return GRAFT_OK;
  graft_fail(message, GRAFT_ERROR_INTERNAL, "%s", api->GetErrorMessage(status));
  api->ReleaseStatus(status);
  return GRAFT_ERROR_INTERNAL;
}
/* Whether a call succeeded whose failure is an answer. */
static inline int graft_c_succeeds(const OrtApi* api, OrtStatus* status) {
  if (status != NULL) api->ReleaseStatus(status);
  return status == NULL;
}
static inline OrtStatus* graft_c_status(const OrtApi* api, const char* where, int32_t code,
                                        const char* text) {
  if (code == GRAFT_OK) return NULL;
  char all[1200];
  snprintf(all, sizeof all, "graft %s: %s", where, text);
  return api->CreateStatus(code == GRAFT_ERROR_INVALID_ARGUMENT ? ORT_INVALID_ARGUMENT
                           : code == GRAFT_ERROR_UNSUPPORTED    ? ORT_NOT_IMPLEMENTED
                                                                : ORT_FAIL,
                           all);
}
#define GRAFT_C_MESSAGE(text, message) \
  char text[1024] = "";                \
  graft_message message = {sizeof message, NULL, text, sizeof text}

/* A tensor with room for its shape. */
typedef struct graft_c_slot {
  graft_tensor tensor;
  int64_t shape[GRAFT_MAX_RANK];
} graft_c_slot;

static inline int32_t graft_c_view(const OrtApi* api, const OrtValue* value, graft_c_slot* slot,
                                   graft_message* message) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  int32_t code = graft_c_failed(api, api->GetTensorTypeAndShape(value, &info), message);
  if (code != GRAFT_OK) return code;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  OrtStatus* status = api->GetTensorElementType(info, &type);
  if (status == NULL) status = api->GetDimensionsCount(info, &rank);
  if (status == NULL && rank <= GRAFT_MAX_RANK)
    status = api->GetDimensions(info, slot->shape, rank);
  api->ReleaseTensorTypeAndShapeInfo(info);
  if ((code = graft_c_failed(api, status, message)) != GRAFT_OK) return code;
  memset(&slot->tensor, 0, sizeof slot->tensor);
  slot->tensor.device.type = GRAFT_DEVICE_CPU;
  slot->tensor.ndim = (int32_t)rank;
  slot->tensor.shape = slot->shape;
  if (rank > GRAFT_MAX_RANK || !graft_c_from_onnx(type, &slot->tensor.dtype)) {
    return graft_fail(message, GRAFT_ERROR_UNSUPPORTED, "a tensor has rank %d and type %d of ONNX",
                      (int)rank, (int)type);
  }
  return graft_c_failed(api, api->GetTensorMutableData((OrtValue*)value, &slot->tensor.data),
                        message);
}

/* Attributes of a node, with what they point to. */
typedef struct graft_c_attributes {
  graft_attribute values[GRAFT_C_MOST_ATTRIBUTES];
  const graft_attribute* pointers[GRAFT_C_MOST_ATTRIBUTES];
  uint32_t count;
} graft_c_attributes;

static inline void graft_c_release(graft_c_attributes* list) {
  for (uint32_t i = 0; i < list->count; ++i) free((void*)list->values[i].data);
}

/* Adds an attribute with room for `bytes` of data; NULL where there is no memory. */
static inline graft_attribute* graft_c_add(graft_c_attributes* list, const graft_attribute* stated,
                                           size_t bytes) {
  graft_attribute* a = &list->values[list->count];
  memset(a, 0, sizeof *a);
  a->size = sizeof *a;
  a->name = stated->name;
  a->kind = stated->kind;
  if (bytes > 0 && (a->data = calloc(1, bytes)) == NULL) return NULL;
  list->pointers[list->count++] = a;
  return a;
}

/* Reads those attributes of a node that the operator states. */
static inline int32_t graft_c_read(const OrtApi* api, const OrtKernelInfo* info,
                                   const graft_operator* op, graft_c_attributes* out,
                                   graft_message* message) {
  for (uint32_t i = 0; i < op->num_attributes && i < GRAFT_C_MOST_ATTRIBUTES; ++i) {
    const graft_attribute* stated = op->attributes[i];
    int64_t number = 0;
    float real = 0;
    size_t count = 0;
    graft_attribute* a = NULL;
    OrtStatus* status = NULL;
    switch (stated->kind) {
      case GRAFT_ATTRIBUTE_INT:
        if (!graft_c_succeeds(api, api->KernelInfoGetAttribute_int64(info, stated->name, &number)))
          continue;
        a = graft_c_add(out, stated, 0);
        a->int_value = number;
        break;
      case GRAFT_ATTRIBUTE_FLOAT:
        if (!graft_c_succeeds(api, api->KernelInfoGetAttribute_float(info, stated->name, &real)))
          continue;
        a = graft_c_add(out, stated, 0);
        a->float_value = real;
        break;
      case GRAFT_ATTRIBUTE_STRING:
        if (!graft_c_succeeds(api,
                              api->KernelInfoGetAttribute_string(info, stated->name, NULL, &count)))
          continue;
        if ((a = graft_c_add(out, stated, count + 1)) == NULL) break;
        status = api->KernelInfoGetAttribute_string(info, stated->name, (char*)a->data, &count);
        a->count = count > 0 ? count - 1 : 0; /* the runtime counts the closing zero */
        break;
      case GRAFT_ATTRIBUTE_INTS:
        if (!graft_c_succeeds(
                api, api->KernelInfoGetAttributeArray_int64(info, stated->name, NULL, &count)))
          continue;
        if ((a = graft_c_add(out, stated, (count + 1) * sizeof(int64_t))) == NULL) break;
        a->count = count;
        if (count > 0)
          status =
              api->KernelInfoGetAttributeArray_int64(info, stated->name, (int64_t*)a->data, &count);
        break;
      default:
        if (!graft_c_succeeds(
                api, api->KernelInfoGetAttributeArray_float(info, stated->name, NULL, &count)))
          continue;
        if ((a = graft_c_add(out, stated, (count + 1) * sizeof(float))) == NULL) break;
        a->count = count;
        if (count > 0)
          status =
              api->KernelInfoGetAttributeArray_float(info, stated->name, (float*)a->data, &count);
    }
    if (a == NULL) return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
    const int32_t code = graft_c_failed(api, status, message);
    if (code != GRAFT_OK) return code;
  }
  return GRAFT_OK;
}

/* One node of a session. */
typedef struct graft_c_node {
  const OrtApi* api;
  const graft_operator* op;
  OrtAllocator* allocator;
  void* kernel;
  size_t num_inputs, num_outputs;
  graft_c_slot constants[GRAFT_C_MOST_VALUES];
} graft_c_node;

static void graft_c_forget(void* node) {
  graft_c_node* n = (graft_c_node*)node;
  graft_c_table()->destroy(n->kernel);
  if (n->allocator != NULL) n->api->ReleaseAllocator(n->allocator);
  free(n);
}

static inline int32_t graft_c_open(const graft_c_op* self, const OrtKernelInfo* info,
                                   graft_c_node* n, graft_message* message) {
  const OrtApi* api = n->api = self->api;
  n->op = self->op;
  int32_t code = graft_c_failed(
      api, api->KernelInfoGetAllocator(info, OrtMemTypeDefault, &n->allocator), message);
  if (code == GRAFT_OK)
    code = graft_c_failed(api, api->KernelInfo_GetInputCount(info, &n->num_inputs), message);
  if (code == GRAFT_OK)
    code = graft_c_failed(api, api->KernelInfo_GetOutputCount(info, &n->num_outputs), message);
  if (code != GRAFT_OK) return code;
  if (n->num_inputs + n->num_outputs > GRAFT_C_MOST_VALUES) {
    return graft_fail(message, GRAFT_ERROR_UNSUPPORTED,
                      "a node of %d inputs and outputs, at most %d",
                      (int)(n->num_inputs + n->num_outputs), GRAFT_C_MOST_VALUES);
  }
  const graft_tensor* constants[GRAFT_C_MOST_VALUES] = {NULL};
  for (size_t i = 0; i < n->num_inputs; ++i) {
    int constant = 0;
    const OrtValue* value = NULL;
    if (!graft_c_succeeds(api, api->KernelInfoGetConstantInput_tensor(info, i, &constant, &value)))
      continue;
    if (!constant || value == NULL) continue;
    if ((code = graft_c_view(api, value, &n->constants[i], message)) != GRAFT_OK) return code;
    constants[i] = &n->constants[i].tensor;
  }
  graft_c_attributes attributes;
  attributes.count = 0;
  code = graft_c_read(api, info, n->op, &attributes, message);
  if (code == GRAFT_OK) {
    graft_create_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.operator_index = self->index;
    request.num_attributes = attributes.count;
    request.attributes = attributes.pointers;
    request.constants = constants;
    request.num_constants = (uint32_t)n->num_inputs;
    request.device.type = GRAFT_DEVICE_CPU;
    code = graft_c_table()->create(&request, &n->kernel, message);
  }
  graft_c_release(&attributes);
  return code;
}

static OrtStatus* graft_c_create_node(const OrtCustomOp* op, const OrtApi* given,
                                      const OrtKernelInfo* info, void** kernel) {
  (void)given;
  const graft_c_op* self = graft_c_self(op);
  GRAFT_C_MESSAGE(text, message);
  graft_c_node* n = (graft_c_node*)calloc(1, sizeof *n);
  if (n == NULL)
    return graft_c_status(self->api, self->op->name, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
  n->api = self->api;
  const int32_t code = graft_c_open(self, info, n, &message);
  if (code != GRAFT_OK) {
    graft_c_forget(n);
    return graft_c_status(self->api, self->op->name, code, text);
  }
  *kernel = n;
  return NULL;
}

typedef struct graft_c_host {
  const OrtApi* api;
  OrtKernelContext* context;
} graft_c_host;

static int32_t graft_c_parallel_for(void* host, uint64_t count, void (*task)(void*, uint64_t),
                                    void* task_context) {
  const graft_c_host* h = (const graft_c_host*)host;
  _Static_assert(sizeof(size_t) == sizeof(uint64_t), "tasks count in 64 bits");
  void (*fn)(void*, size_t) = (void (*)(void*, size_t))task;
  return graft_c_succeeds(h->api,
                          h->api->KernelContext_ParallelFor(h->context, fn, count, 0, task_context))
             ? GRAFT_OK
             : GRAFT_ERROR_INTERNAL;
}

static void graft_c_log(void* host, int32_t level, const char* text) {
  const graft_c_host* h = (const graft_c_host*)host;
  const OrtLogger* logger = NULL;
  if (!graft_c_succeeds(h->api, h->api->KernelContext_GetLogger(h->context, &logger))) return;
  static const OrtLoggingLevel levels[] = {ORT_LOGGING_LEVEL_VERBOSE, ORT_LOGGING_LEVEL_INFO,
                                           ORT_LOGGING_LEVEL_WARNING, ORT_LOGGING_LEVEL_ERROR};
  const int32_t known = level < 0 ? 0 : level > GRAFT_LOG_ERROR ? GRAFT_LOG_ERROR : level;
  graft_c_succeeds(
      h->api, h->api->Logger_LogMessage(logger, levels[known], text, GRAFT_PLUGIN_NAME, 0, "run"));
}

static inline int32_t graft_c_compute(const graft_c_node* n, OrtKernelContext* context,
                                      graft_message* message) {
  const OrtApi* api = n->api;
  graft_c_slot slots[GRAFT_C_MOST_VALUES];
  const graft_tensor* inputs[GRAFT_C_MOST_VALUES];
  graft_tensor* outputs[GRAFT_C_MOST_VALUES];
  int32_t code = GRAFT_OK;
  for (size_t i = 0; i < n->num_inputs; ++i) {
    const OrtValue* value = NULL;
    inputs[i] = NULL;
    if ((code = graft_c_failed(api, api->KernelContext_GetInput(context, i, &value), message)) !=
        GRAFT_OK)
      return code;
    if (value == NULL) continue;
    if ((code = graft_c_view(api, value, &slots[i], message)) != GRAFT_OK) return code;
    inputs[i] = &slots[i].tensor;
  }
  for (size_t i = 0; i < n->num_outputs; ++i) {
    graft_c_slot* slot = &slots[n->num_inputs + i];
    memset(&slot->tensor, 0, sizeof slot->tensor);
    slot->tensor.device.type = GRAFT_DEVICE_CPU;
    slot->tensor.shape = slot->shape;
    slot->tensor.ndim = -1;
    outputs[i] = &slot->tensor;
  }
  /* The author's own function: which outputs the node has is known only once their shapes are. */
  const graft_c_kernel* k = (const graft_c_kernel*)n->kernel;
  code = graft_c_check("input", n->op->inputs, n->op->num_inputs, inputs, n->num_inputs, message);
  if (code == GRAFT_OK) {
    code = graft_c_own()->infer(k->own, inputs, n->num_inputs, outputs, n->num_outputs, message);
  }
  if (code != GRAFT_OK) return code;
  for (size_t i = 0; i < n->num_outputs; ++i) {
    graft_tensor* t = outputs[i];
    for (int32_t axis = 0; axis < t->ndim; ++axis) {
      if (t->shape[axis] < 0) {
        return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                          "output %d has no size along axis %d", (int)i, axis);
      }
    }
    OrtValue* value = NULL;
    const size_t rank = t->ndim < 0 ? 0 : (size_t)t->ndim;
    if ((code = graft_c_failed(
             api, api->KernelContext_GetOutput(context, i, t->shape, rank, &value), message)) !=
        GRAFT_OK)
      return code;
    if (value == NULL) { /* an optional output that the node leaves out */
      outputs[i] = NULL;
      continue;
    }
    if (t->ndim < 0) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "the node has output %d, which its inputs and attributes do not make",
                        (int)i);
    }
    if ((code = graft_c_failed(api, api->GetTensorMutableData(value, &t->data), message)) !=
        GRAFT_OK)
      return code;
  }
  graft_c_host host = {api, context};
  graft_run_context run;
  memset(&run, 0, sizeof run);
  run.size = sizeof run;
  run.parallel_for = &graft_c_parallel_for;
  run.parallel_context = &host;
  run.log = &graft_c_log;
  run.log_context = &host;
  const long threads = sysconf(_SC_NPROCESSORS_ONLN);
  run.concurrency = threads > 0 ? (int32_t)threads : 0;
  code = graft_c_table()->workspace_size(n->kernel, inputs, n->num_inputs,
                                         (const graft_tensor* const*)outputs, n->num_outputs,
                                         run.concurrency, &run.workspace_size, message);
  if (code != GRAFT_OK) return code;
  void* block = NULL;
  if (run.workspace_size > 0) {
    if (run.workspace_size <= UINT64_MAX - 64)
      block = n->allocator->Alloc(n->allocator, run.workspace_size + 63);
    if (block == NULL)
      return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "no %llu bytes of workspace",
                        (unsigned long long)run.workspace_size);
    run.workspace = (void*)(((uintptr_t)block + 63) & ~(uintptr_t)63);
  }
  code = graft_c_table()->run(n->kernel, &run, inputs, n->num_inputs, outputs, n->num_outputs,
                              message);
  if (block != NULL) n->allocator->Free(n->allocator, block);
  return code;
}

static OrtStatus* graft_c_compute_node(void* node, OrtKernelContext* context) {
  const graft_c_node* n = (const graft_c_node*)node;
  GRAFT_C_MESSAGE(text, message);
  const int32_t code = graft_c_compute(n, context, &message);
  return graft_c_status(n->api, n->op->name, code, text);
}

/* Names of unknown sizes by the negative numbers that stand for them: -2 is the first. */
typedef struct graft_c_names {
  char names[GRAFT_C_MOST_VALUES][128];
  int count;
} graft_c_names;

static inline int64_t graft_c_number(graft_c_names* list, const char* name) {
  if (name == NULL || name[0] == 0 || strlen(name) >= sizeof list->names[0])
    return GRAFT_UNKNOWN_DIM;
  for (int i = 0; i < list->count; ++i) {
    if (strcmp(list->names[i], name) == 0) return -2 - i;
  }
  if (list->count == GRAFT_C_MOST_VALUES) return GRAFT_UNKNOWN_DIM;
  strcpy(list->names[list->count], name);
  return -2 - list->count++;
}

/* The runtime takes equal names for equal sizes: a new one is like no other in this process, nor in
 * the one that wrote the model. */
static inline void graft_c_fresh(char* name, size_t size) {
  static uint64_t counter;
  static uint64_t started;
  if (__atomic_load_n(&started, __ATOMIC_RELAXED) == 0) {
    struct timespec now = {0, 0};
    timespec_get(&now, TIME_UTC);
    __atomic_store_n(&started, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
                     __ATOMIC_RELAXED);
  }
  snprintf(name, size, "graft_dim_%" PRIxPTR "_%" PRIx64 "_%" PRIu64, (uintptr_t)&counter,
           __atomic_load_n(&started, __ATOMIC_RELAXED),
           __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
}

/* Reads those attributes that the operator states while a model loads. */
static inline int graft_c_read_at_load(const OrtApi* api, OrtShapeInferContext* context,
                                       const graft_operator* op, graft_c_attributes* out) {
  static const OrtOpAttrType kinds[] = {ORT_OP_ATTR_UNDEFINED, ORT_OP_ATTR_INT,
                                        ORT_OP_ATTR_FLOAT,     ORT_OP_ATTR_STRING,
                                        ORT_OP_ATTR_INTS,      ORT_OP_ATTR_FLOATS};
  for (uint32_t i = 0; i < op->num_attributes && i < GRAFT_C_MOST_ATTRIBUTES; ++i) {
    const graft_attribute* stated = op->attributes[i];
    const OrtOpAttr* attribute = NULL;
    if (!graft_c_succeeds(api,
                          api->ShapeInferContext_GetAttribute(context, stated->name, &attribute)))
      continue;
    char few[64];
    size_t size = 0;
    const int fits = graft_c_succeeds(
        api, api->ReadOpAttr(attribute, kinds[stated->kind], few, sizeof few, &size));
    if (!fits && size <= sizeof few) continue;
    graft_attribute* a = graft_c_add(out, stated, size + sizeof(int64_t));
    if (a == NULL) return 0;
    if (fits) {
      memcpy((void*)a->data, few, size);
    } else if (!graft_c_succeeds(api, api->ReadOpAttr(attribute, kinds[stated->kind],
                                                      (void*)a->data, size, &size))) {
      return 0;
    }
    float real = 0;
    switch (stated->kind) {
      case GRAFT_ATTRIBUTE_INT:
        memcpy(&a->int_value, a->data, sizeof a->int_value);
        break;
      case GRAFT_ATTRIBUTE_FLOAT:
        memcpy(&real, a->data, sizeof real);
        a->float_value = real;
        break;
      case GRAFT_ATTRIBUTE_STRING:
        a->count = strlen((const char*)a->data); /* zeros stand after it */
        break;
      case GRAFT_ATTRIBUTE_INTS:
        a->count = size / sizeof(int64_t);
        break;
      default:
        a->count = size / sizeof(float);
    }
  }
  return 1;
}

/* Infers what can be inferred while a model loads, and is silent about the rest: a contradiction
 * shows in the run. */
static OrtStatus* graft_c_infer_at_load(const OrtCustomOp* op, OrtShapeInferContext* context) {
  const graft_c_op* self = graft_c_self(op);
  const OrtApi* api = self->api;
  size_t num = 0;
  if (!graft_c_succeeds(api, api->ShapeInferContext_GetInputCount(context, &num))) return NULL;
  if (num + self->op->num_outputs > GRAFT_C_MOST_VALUES) return NULL;
  graft_c_slot slots[GRAFT_C_MOST_VALUES];
  const graft_tensor* inputs[GRAFT_C_MOST_VALUES];
  graft_tensor* outputs[GRAFT_C_MOST_VALUES];
  graft_c_names symbols;
  symbols.count = 0;
  for (size_t i = 0; i < num; ++i) {
    OrtTensorTypeAndShapeInfo* info = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    const char* names[GRAFT_MAX_RANK] = {NULL};
    inputs[i] = NULL;
    if (!graft_c_succeeds(api, api->ShapeInferContext_GetInputTypeShape(context, i, &info)) ||
        !graft_c_succeeds(api, api->GetTensorElementType(info, &type))) {
      return NULL;
    }
    if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED)
      continue; /* an input that the node leaves out */
    /* The runtime shows an unknown rank as rank 0. */
    if (!graft_c_succeeds(api, api->GetDimensionsCount(info, &rank)) || rank == 0 ||
        rank > GRAFT_MAX_RANK ||
        !graft_c_succeeds(api, api->GetDimensions(info, slots[i].shape, rank)) ||
        !graft_c_succeeds(api, api->GetSymbolicDimensions(info, names, rank))) {
      return NULL;
    }
    for (size_t axis = 0; axis < rank; ++axis) {
      if (slots[i].shape[axis] < 0) slots[i].shape[axis] = graft_c_number(&symbols, names[axis]);
    }
    memset(&slots[i].tensor, 0, sizeof slots[i].tensor);
    slots[i].tensor.device.type = GRAFT_DEVICE_CPU;
    slots[i].tensor.ndim = (int32_t)rank;
    slots[i].tensor.shape = slots[i].shape;
    if (!graft_c_from_onnx(type, &slots[i].tensor.dtype)) return NULL;
    inputs[i] = &slots[i].tensor;
  }
  for (uint32_t i = 0; i < self->op->num_outputs; ++i) {
    if ((self->op->outputs[i]->flags & GRAFT_PARAMETER_VARIADIC) != 0) return NULL;
    graft_c_slot* slot = &slots[num + i];
    memset(&slot->tensor, 0, sizeof slot->tensor);
    slot->tensor.ndim = -1;
    slot->tensor.shape = slot->shape;
    outputs[i] = &slot->tensor;
  }
  graft_c_attributes attributes;
  attributes.count = 0;
  void* kernel = NULL;
  int32_t code = GRAFT_ERROR_INTERNAL;
  if (graft_c_read_at_load(api, context, self->op, &attributes)) {
    graft_create_request request;
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.operator_index = self->index;
    request.num_attributes = attributes.count;
    request.attributes = attributes.pointers;
    request.device.type = GRAFT_DEVICE_CPU;
    code = graft_c_table()->create(&request, &kernel, NULL);
  }
  graft_c_release(&attributes);
  if (code == GRAFT_OK) {
    code = graft_c_check("input", self->op->inputs, self->op->num_inputs, inputs, num, NULL);
  }
  if (code == GRAFT_OK) {
    code = graft_c_own()->infer(((const graft_c_kernel*)kernel)->own, inputs, num, outputs,
                                self->op->num_outputs, NULL);
  }
  for (uint32_t i = 0; code == GRAFT_OK && i < self->op->num_outputs; ++i) {
    /* The runtime does not tell how many outputs a node has: optional ones stay as the model states
     * them. */
    if ((self->op->outputs[i]->flags & GRAFT_PARAMETER_OPTIONAL) != 0) break;
    const graft_tensor* t = outputs[i];
    if (t->ndim < 0) continue;
    int64_t sizes[GRAFT_MAX_RANK];
    char names[GRAFT_MAX_RANK][128];
    const char* pointers[GRAFT_MAX_RANK];
    for (int32_t axis = 0; axis < t->ndim; ++axis) {
      const int64_t size = t->shape[axis];
      sizes[axis] = size < 0 ? -1 : size;
      names[axis][0] = 0;
      pointers[axis] = names[axis];
      if (size >= 0) continue;
      if (size <= -2 && -2 - size < symbols.count) {
        strcpy(names[axis], symbols.names[-2 - size]);
      } else {
        graft_c_fresh(names[axis], sizeof names[axis]);
      }
    }
    OrtTensorTypeAndShapeInfo* info = NULL;
    if (!graft_c_succeeds(api, api->CreateTensorTypeAndShapeInfo(&info))) break;
    OrtStatus* status = api->SetTensorElementType(info, graft_c_to_onnx(t->dtype));
    if (status == NULL) status = api->SetDimensions(info, sizes, (size_t)t->ndim);
    if (status == NULL) status = api->SetSymbolicDimensions(info, pointers, (size_t)t->ndim);
    if (status == NULL) status = api->ShapeInferContext_SetOutputTypeShape(context, i, info);
    api->ReleaseTensorTypeAndShapeInfo(info);
    graft_c_succeeds(api, status);
  }
  graft_c_table()->destroy(kernel);
  return NULL;
}

/* Up to 1.23 the runtime's inference ends the process when it meets an absent input. */
static inline int graft_c_may_infer(const OrtApiBase* base, const graft_operator* op) {
  for (uint32_t i = 0; i < op->num_inputs; ++i) {
    if ((op->inputs[i]->flags & GRAFT_PARAMETER_OPTIONAL) == 0) continue;
    int major = 0, minor = 0;
    return sscanf(base->GetVersionString(), "%d.%d", &major, &minor) == 2 &&
           (major > 1 || minor >= 24);
  }
  return 1;
}

static inline void graft_c_fill(graft_c_op* self, int may_infer) {
  OrtCustomOp* op = &self->base;
  op->version = GRAFT_C_ORT_VERSION;
  op->GetName = &graft_c_name;
  op->GetExecutionProviderType = &graft_c_provider;
  op->GetInputTypeCount = &graft_c_inputs;
  op->GetInputType = &graft_c_input_type;
  op->GetOutputTypeCount = &graft_c_outputs;
  op->GetOutputType = &graft_c_output_type;
  op->GetInputCharacteristic = &graft_c_input_kind;
  op->GetOutputCharacteristic = &graft_c_output_kind;
  op->GetInputMemoryType = &graft_c_memory;
  op->GetVariadicInputMinArity = &graft_c_least_inputs;
  op->GetVariadicInputHomogeneity = &graft_c_alike_inputs;
  op->GetVariadicOutputMinArity = &graft_c_least_outputs;
  op->GetVariadicOutputHomogeneity = &graft_c_alike_outputs;
  op->GetStartVersion = &graft_c_start;
  op->GetEndVersion = &graft_c_end_version;
  op->CreateKernelV2 = &graft_c_create_node;
  op->KernelComputeV2 = &graft_c_compute_node;
  op->KernelDestroy = &graft_c_forget;
  if (may_infer) op->InferOutputShapeFn = &graft_c_infer_at_load;
}

/* The type of a parameter in the overload `choice`, whose digits, by numbers of types, are the
 * choices of variables. */
static inline ONNXTensorElementDataType graft_c_chosen(const graft_parameter* p,
                                                       const uint32_t* digits) {
  if (p->type_variable >= 0 && p->type_variable < 8)
    return graft_c_to_onnx(p->types[digits[p->type_variable]]);
  return p->num_types == 1 ? graft_c_to_onnx(p->types[0]) : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

#define GRAFT_C_MOST_OPS 256

/* The operators of one runtime. */
typedef struct graft_c_set {
  const OrtApi* api;
  const void* ops[GRAFT_C_MOST_OPS];
  uint64_t count;
  struct graft_c_set* next;
} graft_c_set;

static inline int32_t graft_c_overloads(const OrtApiBase* base, const graft_operator* op,
                                        uint32_t index, graft_c_set* set, graft_message* message) {
  if (op->num_inputs + op->num_outputs > GRAFT_C_MOST_VALUES) {
    return graft_fail(message, GRAFT_ERROR_UNSUPPORTED, "%s has %u inputs and outputs, at most %d",
                      op->name, op->num_inputs + op->num_outputs, GRAFT_C_MOST_VALUES);
  }
  uint32_t sizes[8] = {1, 1, 1, 1, 1, 1, 1, 1}, digits[8] = {0};
  for (uint32_t i = 0; i < op->num_inputs; ++i) {
    const int32_t v = op->inputs[i]->type_variable;
    if (v >= 0 && v < 8) sizes[v] = op->inputs[i]->num_types;
  }
  for (;;) {
    graft_c_op* made = (graft_c_op*)calloc(1, sizeof *made);
    if (made == NULL || set->count == GRAFT_C_MOST_OPS) {
      free(made);
      return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "no room for the overloads of %s",
                        op->name);
    }
    made->api = set->api;
    made->op = op;
    made->index = index;
    for (uint32_t i = 0; i < op->num_inputs; ++i)
      made->types[i] = graft_c_chosen(op->inputs[i], digits);
    for (uint32_t i = 0; i < op->num_outputs; ++i) {
      made->types[op->num_inputs + i] = graft_c_chosen(op->outputs[i], digits);
    }
    graft_c_fill(made, graft_c_may_infer(base, op));
    set->ops[set->count++] = made;
    int v = 0;
    while (v < 8 && ++digits[v] >= sizes[v]) digits[v++] = 0;
    if (v == 8) return GRAFT_OK;
  }
}

static inline int32_t graft_c_ort_ops(const void* ort_api_base, const void* const** ops,
                                      uint64_t* num_ops, graft_message* message) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static graft_c_set* sets; /* never freed: sessions hold pointers into them */
  const OrtApiBase* base = (const OrtApiBase*)ort_api_base;
  const OrtApi* api = base->GetApi(GRAFT_C_ORT_VERSION);
  if (api == NULL) {
    return graft_fail(message, GRAFT_ERROR_UNSUPPORTED,
                      "ONNX Runtime %s is too old: API %d is needed, which 1.18 and later have",
                      base->GetVersionString(), GRAFT_C_ORT_VERSION);
  }
  int32_t code = GRAFT_OK;
  pthread_mutex_lock(&mutex);
  graft_c_set* set = sets;
  while (set != NULL && set->api != api) set = set->next;
  if (set == NULL) {
    set = (graft_c_set*)calloc(1, sizeof *set);
    if (set == NULL) code = graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
    const graft_plugin_info* info = graft_c_table()->describe();
    if (set != NULL) set->api = api;
    for (uint32_t i = 0; code == GRAFT_OK && i < info->num_operators; ++i) {
      code = graft_c_overloads(base, info->operators[i], i, set, message);
    }
    if (code == GRAFT_OK) {
      set->next = sets;
      sets = set;
    }
  }
  pthread_mutex_unlock(&mutex);
  if (code != GRAFT_OK) return code;
  *ops = set->ops;
  *num_ops = set->count;
  return GRAFT_OK;
}

/* The domain "graft" of the session options of one program, which all libraries share: see
 * graft_ort_registrar. */
typedef struct graft_c_domain {
  graft_ort_registrar registrar; /* first: join finds the rest beside it */
  const OrtApi* api;
  pthread_mutex_t mutex;
  uint32_t count;
  struct {
    char name[128], plugin[80];
  } owners[1024];
} graft_c_domain;

static int32_t graft_c_join(const graft_ort_registrar* registrar, const char* plugin,
                            const void* const* ops, uint64_t num_ops, graft_message* message) {
  graft_c_domain* d = (graft_c_domain*)registrar;
  const OrtApi* api = d->api;
  int32_t code = GRAFT_OK;
  pthread_mutex_lock(&d->mutex);
  const uint32_t before = d->count; /* what this call adds does not hinder its further overloads */
  for (int add = 0; add < 2 && code == GRAFT_OK; ++add) {
    for (uint64_t i = 0; i < num_ops && code == GRAFT_OK; ++i) {
      const OrtCustomOp* op = (const OrtCustomOp*)ops[i];
      const char* provider = op->GetExecutionProviderType(op);
      char name[128];
      snprintf(name, sizeof name, "%s\n%s", op->GetName(op), provider != NULL ? provider : "");
      uint32_t at = 0;
      while (at < before && strcmp(d->owners[at].name, name) != 0) ++at;
      if (at < before) {
        if (strcmp(d->owners[at].plugin, plugin) != 0) {
          code =
              graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                         "operator %s is registered by plugin %s already; leave one of the two out",
                         op->GetName(op), d->owners[at].plugin);
        }
        continue;
      }
      if (!add) continue;
      if (d->count == GRAFT_COUNT(d->owners)) {
        code = graft_fail(message, GRAFT_ERROR_UNSUPPORTED, "more than %u operators", d->count);
        break;
      }
      code = graft_c_failed(api, api->CustomOpDomain_Add((OrtCustomOpDomain*)registrar->domain, op),
                            message);
      if (code != GRAFT_OK) break;
      strcpy(d->owners[d->count].name, name);
      snprintf(d->owners[d->count++].plugin, sizeof d->owners[0].plugin, "%s", plugin);
    }
  }
  pthread_mutex_unlock(&d->mutex);
  return code;
}

/* The registrar of some options, which is made where there is none. It is never freed: options are
 * copied and freed without notice, and the runtime holds only pointers. */
static inline int32_t graft_c_registrar(const OrtApi* api, OrtSessionOptions* options,
                                        const graft_ort_registrar** registrar,
                                        graft_message* message) {
  int present = 0;
  int32_t code = graft_c_failed(
      api, api->HasSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, &present), message);
  char text[32] = "";
  if (code == GRAFT_OK && present) {
    size_t size = sizeof text;
    code = graft_c_failed(
        api, api->GetSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, text, &size), message);
    if (code != GRAFT_OK) return code;
    *registrar = (const graft_ort_registrar*)(uintptr_t)strtoull(text, NULL, 16);
    if (*registrar != NULL) return GRAFT_OK;
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                      "session config entry " GRAFT_ORT_DOMAIN_KEY
                      " is %s, needed is the address that a plugin wrote; remove the entry",
                      text);
  }
  if (code != GRAFT_OK) return code;
  static graft_c_domain*
      kept; /* the last one: a checker of leaks sees the others through it no more */
  graft_c_domain* d = (graft_c_domain*)calloc(1, sizeof *d);
  if (d == NULL) return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
  OrtCustomOpDomain* domain = NULL;
  code = graft_c_failed(api, api->CreateCustomOpDomain(GRAFT_ONNX_DOMAIN, &domain), message);
  if (code == GRAFT_OK)
    code = graft_c_failed(api, api->AddCustomOpDomain(options, domain), message);
  snprintf(text, sizeof text, "0x%" PRIxPTR, (uintptr_t)d);
  if (code == GRAFT_OK)
    code = graft_c_failed(api, api->AddSessionConfigEntry(options, GRAFT_ORT_DOMAIN_KEY, text),
                          message);
  if (code != GRAFT_OK) {
    free(d);
    return code;
  }
  d->registrar.size = sizeof d->registrar;
  d->registrar.join = &graft_c_join;
  d->registrar.domain = domain;
  d->api = api;
  pthread_mutex_init(&d->mutex, NULL);
  __atomic_store_n(&kept, d, __ATOMIC_RELAXED);
  *registrar = &d->registrar;
  return GRAFT_OK;
}

/* What RegisterCustomOps does. */
static inline OrtStatus* graft_c_ort_register(OrtSessionOptions* options, const OrtApiBase* base) {
  GRAFT_C_MESSAGE(text, message);
  const OrtApi* any = base->GetApi(1); /* every runtime has it: enough to make a status */
  const void* const* ops = NULL;
  uint64_t count = 0;
  int32_t code = graft_c_ort_ops(base, &ops, &count, &message);
  if (code == GRAFT_OK && count > 0) {
    const graft_ort_registrar* registrar = NULL;
    code = graft_c_registrar(base->GetApi(GRAFT_C_ORT_VERSION), options, &registrar, &message);
    if (code == GRAFT_OK)
      code = registrar->join(registrar, GRAFT_PLUGIN_NAME, ops, count, &message);
  }
  return graft_c_status(any, GRAFT_PLUGIN_NAME, code, text);
}

#endif /* GRAFT_KIT_GRAFT_C_ORT_H_ */
