/* The kit for plugins in C. It brings what no plugin differs in: the table of functions, checks of
 * what a host gives, the ELF note, and ONNX Runtime's custom operators. A source defines its
 * operators and six functions, and once, in one file of the library,
 *
 *   GRAFT_C_PLUGIN(operators, fold, create, infer, workspace, run, destroy);
 *
 * operators is an array of const graft_operator*, of which there may be none:
 * GRAFT_C_FOLD_PLUGIN(fold). The functions are those of graft_plugin (see graft_plugin.h), with
 * kernels of the author's own; fold and workspace may be NULL. By the time they are called, tensors
 * fit the operator's description. The build defines GRAFT_PLUGIN_NAME, _VERSION, _SUMMARY, _DEVICE
 * and _ISA. */
#ifndef GRAFT_KIT_GRAFT_C_H_
#define GRAFT_KIT_GRAFT_C_H_

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft/note.h"
#include "graft_plugin.h"
#include "graft_plugin_layout.h"

#define GRAFT_FLOAT32 \
  { GRAFT_TYPE_FLOAT, 32, 1 }
#define GRAFT_FLOAT64 \
  { GRAFT_TYPE_FLOAT, 64, 1 }
#define GRAFT_FLOAT16 \
  { GRAFT_TYPE_FLOAT, 16, 1 }
#define GRAFT_INT64 \
  { GRAFT_TYPE_INT, 64, 1 }
#define GRAFT_INT32 \
  { GRAFT_TYPE_INT, 32, 1 }

/* The number of elements of an array. */
#define GRAFT_COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* A parameter of one type list, with flags GRAFT_PARAMETER_*. */
#define GRAFT_C_PARAMETER(name, types, flags) \
  { sizeof(graft_parameter), NULL, name, types, GRAFT_COUNT(types), -1, flags, 0 }

/* An attribute that is a number, with its default. */
#define GRAFT_C_INT(name, value) \
  { sizeof(graft_attribute), NULL, name, GRAFT_ATTRIBUTE_INT, 0, value, 0, NULL, 0 }
#define GRAFT_C_FLOAT(name, value) \
  { sizeof(graft_attribute), NULL, name, GRAFT_ATTRIBUTE_FLOAT, 0, 0, value, NULL, 0 }

/* Writes why a function fails, and gives its code back: return graft_fail(...). */
static inline int32_t graft_fail(graft_message* message, int32_t code, const char* format, ...) {
  if (message != NULL && message->text != NULL && message->capacity > 0) {
    va_list list;
    va_start(list, format);
    vsnprintf(message->text, message->capacity, format, list);
    va_end(list);
  }
  return code;
}

/* The first element. */
static inline void* graft_data(const graft_tensor* t) { return (char*)t->data + t->byte_offset; }

static inline int64_t graft_elements(const graft_tensor* t) {
  int64_t count = 1;
  for (int32_t i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

/* Elements between neighbours along an axis. */
static inline int64_t graft_stride(const graft_tensor* t, int32_t axis) {
  if (t->strides != NULL) return t->strides[axis];
  int64_t stride = 1;
  for (int32_t i = t->ndim - 1; i > axis; --i) stride *= t->shape[i];
  return stride;
}

/* Gives an output the type and the shape of an input. */
static inline void graft_like(graft_tensor* output, const graft_tensor* input) {
  output->dtype = input->dtype;
  output->ndim = input->ndim;
  for (int32_t i = 0; i < input->ndim; ++i) output->shape[i] = input->shape[i];
}

/* An attribute that was given, or NULL: then it has the default of the description. */
static inline const graft_attribute* graft_attribute_of(const graft_create_request* request,
                                                        const char* name) {
  for (uint32_t i = 0; i < request->num_attributes; ++i) {
    if (strcmp(request->attributes[i]->name, name) == 0) return request->attributes[i];
  }
  return NULL;
}
static inline int64_t graft_int(const graft_create_request* request, const char* name,
                                int64_t otherwise) {
  const graft_attribute* a = graft_attribute_of(request, name);
  return a != NULL && a->kind == GRAFT_ATTRIBUTE_INT ? a->int_value : otherwise;
}
static inline double graft_float(const graft_create_request* request, const char* name,
                                 double otherwise) {
  const graft_attribute* a = graft_attribute_of(request, name);
  return a != NULL && a->kind == GRAFT_ATTRIBUTE_FLOAT ? a->float_value : otherwise;
}

/* Calls task(argument, i) for i in [0, count) on the host's threads. */
static inline int32_t graft_parallel(const graft_run_context* context, uint64_t count,
                                     void (*task)(void*, uint64_t), void* argument) {
  if (count > 1 && context->parallel_for != NULL) {
    return context->parallel_for(context->parallel_context, count, task, argument);
  }
  for (uint64_t i = 0; i < count; ++i) task(argument, i);
  return GRAFT_OK;
}

/* A captured constant of a fold, or NULL. */
static inline const graft_tensor* graft_constant(const graft_fold_request* request,
                                                 const char* name) {
  for (uint32_t i = 0; i < request->num_constants; ++i) {
    if (strcmp(request->constants[i]->name, name) == 0) return request->constants[i]->tensor;
  }
  return NULL;
}

/* What follows is the kit's own. */

static const graft_plugin* graft_c_table(void);

/* A kernel with the operator that it is of. */
typedef struct graft_c_kernel {
  const graft_operator* op;
  void* own;
} graft_c_kernel;

static inline const graft_parameter* graft_c_parameter(const graft_parameter* const* list,
                                                       uint32_t count, uint64_t index) {
  if (index < count) return list[index];
  if (count > 0 && (list[count - 1]->flags & GRAFT_PARAMETER_VARIADIC) != 0) return list[count - 1];
  return NULL;
}

static inline int graft_c_same(graft_data_type a, graft_data_type b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Whether tensors fit parameters: required ones present, none too many, types as stated. */
static inline int32_t graft_c_check(const char* side, const graft_parameter* const* list,
                                    uint32_t count, const graft_tensor* const* tensors,
                                    uint64_t num, graft_message* message) {
  const uint32_t may_lack = GRAFT_PARAMETER_OPTIONAL | GRAFT_PARAMETER_VARIADIC;
  graft_data_type bound[8];
  int is_bound[8] = {0};
  for (uint64_t i = 0; i < num; ++i) {
    const graft_parameter* p = graft_c_parameter(list, count, i);
    if (p == NULL) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT, "%llu %ss given, at most %u stated",
                        (unsigned long long)num, side, count);
    }
    if (tensors[i] == NULL) {
      if ((p->flags & GRAFT_PARAMETER_OPTIONAL) != 0) continue;
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "%s %llu (%s) is absent and not optional", side, (unsigned long long)i,
                        p->name);
    }
    int allowed = 0;
    for (uint32_t t = 0; t < p->num_types; ++t) {
      allowed |= graft_c_same(p->types[t], tensors[i]->dtype);
    }
    const int32_t v = p->type_variable;
    if (v >= 0 && v < 8) {
      allowed &= !is_bound[v] || graft_c_same(bound[v], tensors[i]->dtype);
      bound[v] = tensors[i]->dtype;
      is_bound[v] = 1;
    }
    if (!allowed) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "%s %llu (%s) holds a type that the operator does not take", side,
                        (unsigned long long)i, p->name);
    }
  }
  for (uint64_t i = num; i < count; ++i) {
    if ((list[i]->flags & may_lack) == 0) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "%s %llu (%s) is absent and not optional", side, (unsigned long long)i,
                        list[i]->name);
    }
  }
  if (count > 0 && (list[count - 1]->flags & GRAFT_PARAMETER_VARIADIC) != 0 &&
      num < count - 1 + (uint64_t)list[count - 1]->min_count) {
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT, "%llu %ss given, too few",
                      (unsigned long long)num, side);
  }
  return GRAFT_OK;
}

/* An empty tensor takes no memory, so nothing bounds its other sizes: a kernel that goes over rows
 * of nothing may never end. Refused where they are more than 2^27 together, as are numbers of
 * elements beyond 64 bits. */
static inline int32_t graft_c_countable(const graft_tensor* const* tensors, uint64_t num,
                                        graft_message* message) {
  for (uint64_t i = 0; i < num; ++i) {
    if (tensors[i] == NULL) continue;
    int64_t places = 1;
    int empty = 0;
    for (int32_t axis = 0; axis < tensors[i]->ndim; ++axis) {
      const int64_t size = tensors[i]->shape[axis];
      empty |= size == 0;
      if (size > 1 && __builtin_mul_overflow(places, size, &places)) places = INT64_MAX / 2;
    }
    if (places > (empty ? (int64_t)1 << 27 : INT64_MAX / 16)) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT, "input %llu has too many places",
                        (unsigned long long)i);
    }
  }
  return GRAFT_OK;
}

typedef struct graft_c_functions {
  int32_t (*create)(const graft_create_request* request, void** kernel, graft_message* message);
  int32_t (*infer)(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs,
                   graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message);
  int32_t (*workspace)(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs,
                       const graft_tensor* const* outputs, uint64_t num_outputs,
                       int32_t concurrency, uint64_t* bytes, graft_message* message);
  int32_t (*run)(const void* kernel, const graft_run_context* context,
                 const graft_tensor* const* inputs, uint64_t num_inputs,
                 graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message);
  void (*destroy)(void* kernel);
} graft_c_functions;

static const graft_c_functions* graft_c_own(void);

static inline int32_t graft_c_create(const graft_create_request* request, void** kernel,
                                     graft_message* message) {
  const graft_plugin_info* info = graft_c_table()->describe();
  if (request->operator_index >= info->num_operators) {
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT, "operator %u asked for, there are %u",
                      request->operator_index, info->num_operators);
  }
  const graft_operator* op = info->operators[request->operator_index];
  for (uint32_t i = 0; i < op->num_attributes; ++i) {
    const graft_attribute* given = graft_attribute_of(request, op->attributes[i]->name);
    if (given == NULL && (op->attributes[i]->flags & GRAFT_ATTRIBUTE_REQUIRED) != 0) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "attribute %s is required and was not given", op->attributes[i]->name);
    }
    if (given != NULL && given->kind != op->attributes[i]->kind) {
      return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                        "attribute %s has kind %d, needed is %d", given->name, given->kind,
                        op->attributes[i]->kind);
    }
  }
  graft_c_kernel* made = (graft_c_kernel*)calloc(1, sizeof *made);
  if (made == NULL) return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
  made->op = op;
  const int32_t code = graft_c_own()->create(request, &made->own, message);
  if (code != GRAFT_OK) {
    free(made);
    return code;
  }
  *kernel = made;
  return GRAFT_OK;
}

static inline int32_t graft_c_infer(const void* kernel, const graft_tensor* const* inputs,
                                    uint64_t num_inputs, graft_tensor* const* outputs,
                                    uint64_t num_outputs, graft_message* message) {
  const graft_c_kernel* k = (const graft_c_kernel*)kernel;
  int32_t code =
      graft_c_check("input", k->op->inputs, k->op->num_inputs, inputs, num_inputs, message);
  if (code != GRAFT_OK) return code;
  for (uint64_t i = 0; i < num_outputs; ++i) {
    if (outputs[i] != NULL) outputs[i]->ndim = -1;
  }
  code = graft_c_own()->infer(k->own, inputs, num_inputs, outputs, num_outputs, message);
  for (uint64_t i = 0; code == GRAFT_OK && i < num_outputs; ++i) {
    if (outputs[i] == NULL || outputs[i]->ndim >= 0) continue;
    const graft_parameter* p = graft_c_parameter(k->op->outputs, k->op->num_outputs, i);
    return graft_fail(
        message, GRAFT_ERROR_INVALID_ARGUMENT,
        "%s: the node has output %llu (%s), which its inputs and attributes do not make",
        k->op->name, (unsigned long long)i, p != NULL ? p->name : "not stated");
  }
  return code;
}

static inline int32_t graft_c_workspace(const void* kernel, const graft_tensor* const* inputs,
                                        uint64_t num_inputs, const graft_tensor* const* outputs,
                                        uint64_t num_outputs, int32_t concurrency, uint64_t* bytes,
                                        graft_message* message) {
  *bytes = 0;
  if (graft_c_own()->workspace == NULL) return GRAFT_OK;
  const int32_t code = graft_c_countable(inputs, num_inputs, message);
  if (code != GRAFT_OK) return code;
  return graft_c_own()->workspace(((const graft_c_kernel*)kernel)->own, inputs, num_inputs, outputs,
                                  num_outputs, concurrency, bytes, message);
}

static inline int32_t graft_c_run(const void* kernel, const graft_run_context* context,
                                  const graft_tensor* const* inputs, uint64_t num_inputs,
                                  graft_tensor* const* outputs, uint64_t num_outputs,
                                  graft_message* message) {
  const graft_c_kernel* k = (const graft_c_kernel*)kernel;
  int32_t code =
      graft_c_check("input", k->op->inputs, k->op->num_inputs, inputs, num_inputs, message);
  if (code == GRAFT_OK) {
    code = graft_c_check("output", k->op->outputs, k->op->num_outputs,
                         (const graft_tensor* const*)outputs, num_outputs, message);
  }
  if (code == GRAFT_OK) code = graft_c_countable(inputs, num_inputs, message);
  if (code != GRAFT_OK) return code;
  return graft_c_own()->run(k->own, context, inputs, num_inputs, outputs, num_outputs, message);
}

static inline void graft_c_destroy(void* kernel) {
  if (kernel == NULL) return;
  if (graft_c_own()->destroy != NULL) graft_c_own()->destroy(((graft_c_kernel*)kernel)->own);
  free(kernel);
}

static inline int32_t graft_c_probe(const graft_device* device, graft_probe_result* result,
                                    graft_message* message) {
  result->score = device->type == GRAFT_DEVICE_CPU ? 50 : 0;
  if (result->score == 0) graft_fail(message, 0, "this library runs on the CPU only");
  return GRAFT_OK;
}

#include "graft_c_ort.h"

#define GRAFT_C_EXPORT __attribute__((visibility("default")))

/* The table, the exports and the note. */
#define GRAFT_C_TABLE(operator_list, operator_count, fold_function)                     \
  GRAFT_NOTE(GRAFT_NOTE_ALL_LINES);                                                     \
  static const graft_plugin_info* graft_c_describe(void) {                              \
    static const graft_plugin_info info = {sizeof info,          NULL,                  \
                                           GRAFT_PLUGIN_NAME,    GRAFT_PLUGIN_VERSION,  \
                                           GRAFT_PLUGIN_SUMMARY, GRAFT_DEVICE_CPU,      \
                                           operator_count,       operator_list};        \
    return &info;                                                                       \
  }                                                                                     \
  static const graft_plugin* graft_c_table(void) {                                      \
    static const graft_ort_ops ops = {sizeof ops, NULL, GRAFT_EXTENSION_ORT_OPS,        \
                                      &graft_c_ort_ops};                                \
    static const graft_plugin table = {sizeof table,      (const graft_extension*)&ops, \
                                       GRAFT_ABI_MAJOR,   GRAFT_ABI_MINOR,              \
                                       &graft_c_describe, &graft_c_probe,               \
                                       fold_function,     &graft_c_create,              \
                                       &graft_c_infer,    &graft_c_workspace,           \
                                       &graft_c_run,      &graft_c_destroy};            \
    return &table;                                                                      \
  }                                                                                     \
  GRAFT_C_EXPORT const graft_plugin* graft_plugin_v1(void) { return graft_c_table(); }  \
  GRAFT_C_EXPORT OrtStatus* RegisterCustomOps(OrtSessionOptions* options,               \
                                              const OrtApiBase* base) {                 \
    return graft_c_ort_register(options, base);                                         \
  }                                                                                     \
  struct graft_c_end

#define GRAFT_C_PLUGIN(operator_list, fold, create, infer, workspace, run, destroy) \
  static const graft_c_functions* graft_c_own(void) {                               \
    static const graft_c_functions own = {create, infer, workspace, run, destroy};  \
    return &own;                                                                    \
  }                                                                                 \
  GRAFT_C_TABLE(operator_list, GRAFT_COUNT(operator_list), fold)

/* Of a plugin without operators. */
#define GRAFT_C_FOLD_PLUGIN(fold)                                        \
  static const graft_c_functions* graft_c_own(void) {                    \
    static const graft_c_functions own = {NULL, NULL, NULL, NULL, NULL}; \
    return &own;                                                         \
  }                                                                      \
  GRAFT_C_TABLE(NULL, 0, fold)

#endif /* GRAFT_KIT_GRAFT_C_H_ */
