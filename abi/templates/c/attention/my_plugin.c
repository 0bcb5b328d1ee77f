/* Attention of few queries over many keys, as in a step of a decoder: keys and values are read
 * once, as stored, with a running softmax (Milakov and Gimelshein, 2018). */
#include <math.h>

#include "graft_c.h"

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* One head's rows in a tensor [batch, heads, positions, size], by element strides. */
struct rows {
  const float* data;
  int64_t position, feature;
};

static struct rows rows_of(const graft_tensor* t, int64_t batch, int64_t head) {
  const float* data = graft_data(t);
  return (struct rows){data + batch * graft_stride(t, 0) + head * graft_stride(t, 1),
                       graft_stride(t, 2), graft_stride(t, 3)};
}

/* Sums in 16 lanes, which a compiler turns into vectors without reordering anything. */
FOR_EACH_CPU static float dot(const float* a, int64_t a_step, const float* b, int64_t b_step,
                              int64_t count) {
  float lanes[16] = {0}, sum = 0;
  int64_t i = 0;
  for (; a_step == 1 && b_step == 1 && i + 16 <= count; i += 16) {
    for (int l = 0; l < 16; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (int l = 0; l < 16; ++l) sum += lanes[l];
  for (; i < count; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

FOR_EACH_CPU static void add(float* to, float weight, const float* row, int64_t step,
                             int64_t count) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] += weight * row[i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] += weight * row[i * step];
  }
}

/* What the operator describes is what it can do: a host gives it no block that needs more. This one
 * takes grouped heads, whose number the tensors say too, and hides later keys; see
 * kit/graft/attention.h for the other names. */
static const graft_data_type float32[] = {GRAFT_FLOAT32};
static const graft_parameter query_in =
    GRAFT_C_PARAMETER("query", float32, GRAFT_PARAMETER_STRIDED);
static const graft_parameter key_in = GRAFT_C_PARAMETER("key", float32, GRAFT_PARAMETER_STRIDED);
static const graft_parameter value_in =
    GRAFT_C_PARAMETER("value", float32, GRAFT_PARAMETER_STRIDED);
static const graft_parameter output_out = GRAFT_C_PARAMETER("output", float32, 0);
static const graft_parameter* const my_inputs[] = {&query_in, &key_in, &value_in};
static const graft_parameter* const my_outputs[] = {&output_out};
static const graft_attribute scale_of = GRAFT_C_FLOAT("scale", 0.0);
static const graft_attribute kv_num_heads_of = GRAFT_C_INT("kv_num_heads", 0);
static const graft_attribute is_causal_of = GRAFT_C_INT("is_causal", 0);
static const graft_attribute* const my_attributes[] = {&scale_of, &kv_num_heads_of, &is_causal_of};
static const graft_operator my_operator = {sizeof my_operator,
                                           NULL,
                                           "MyPlugin",
                                           "attention of few queries over many keys",
                                           my_inputs,
                                           my_outputs,
                                           my_attributes,
                                           GRAFT_COUNT(my_inputs),
                                           GRAFT_COUNT(my_outputs),
                                           GRAFT_COUNT(my_attributes),
                                           1};
static const graft_operator* const operators[] = {&my_operator};

/* A node's attributes. */
struct kernel {
  float scale; /* 0: 1 / sqrt(size) */
  int causal;
};

static int32_t create(const graft_create_request* request, void** kernel, graft_message* message) {
  struct kernel* made = malloc(sizeof *made);
  if (made == NULL) return graft_fail(message, GRAFT_ERROR_OUT_OF_MEMORY, "out of memory");
  made->scale = (float)graft_float(request, "scale", 0.0);
  made->causal = graft_int(request, "is_causal", 0) != 0;
  *kernel = made;
  return GRAFT_OK;
}

static void destroy(void* kernel) { free(kernel); }

/* Whether two sizes contradict each other: one below 0 is not known yet. */
static int differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

static int32_t infer(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs,
                     graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message) {
  (void)kernel, (void)num_outputs;
  for (uint64_t i = 0; i < num_inputs; ++i) {
    if (inputs[i]->ndim == 4) continue;
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                      "%s has %d axes, needed are 4: batch, heads, positions, size",
                      my_inputs[i]->name, inputs[i]->ndim);
  }
  const int64_t *q = inputs[0]->shape, *k = inputs[1]->shape, *v = inputs[2]->shape;
  if (differ(q[0], k[0]) || differ(q[0], v[0]) || differ(k[1], v[1]) || differ(k[2], v[2]) ||
      differ(q[3], k[3])) {
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                      "batch, heads, positions or size of query, key and value do not fit");
  }
  if (q[1] > 0 && k[1] >= 0 && (k[1] == 0 || q[1] % k[1] != 0)) {
    return graft_fail(message, GRAFT_ERROR_INVALID_ARGUMENT,
                      "found %lld heads over %lld, needed a multiple", (long long)q[1],
                      (long long)k[1]);
  }
  graft_like(outputs[0], inputs[0]);
  outputs[0]->shape[3] = v[3];
  return GRAFT_OK;
}

enum { block = 64 };

struct job {
  const graft_tensor *query, *key, *value;
  float* output;
  float scale;
  int causal;
};

/* One query of one head. */
static void task(void* argument, uint64_t row) {
  const struct job* j = argument;
  const int64_t heads = j->query->shape[1], queries = j->query->shape[2];
  const int64_t keys = j->key->shape[2], size = j->key->shape[3], value_size = j->value->shape[3];
  const int64_t i = (int64_t)row % queries, head = (int64_t)row / queries % heads;
  const int64_t batch = (int64_t)row / queries / heads;
  const int64_t kv_head = head * j->key->shape[1] / heads;
  const struct rows q = rows_of(j->query, batch, head), k = rows_of(j->key, batch, kv_head),
                    v = rows_of(j->value, batch, kv_head);
  const int64_t seen = j->causal && i + 1 < keys ? i + 1 : keys;
  float* sum = j->output + (int64_t)row * value_size;
  float highest = -INFINITY, total = 0, weights[block];
  for (int64_t f = 0; f < value_size; ++f) sum[f] = 0;
  for (int64_t begin = 0; begin < seen; begin += block) {
    const int64_t count = seen - begin < block ? seen - begin : block;
    float most = highest;
    for (int64_t n = 0; n < count; ++n) {
      weights[n] = j->scale * dot(q.data + i * q.position, q.feature,
                                  k.data + (begin + n) * k.position, k.feature, size);
      if (weights[n] > most) most = weights[n];
    }
    const float rest = expf(highest - most); /* 0 at first */
    highest = most;
    total *= rest;
    for (int64_t f = 0; f < value_size; ++f) sum[f] *= rest;
    for (int64_t n = 0; n < count; ++n) {
      const float weight = expf(weights[n] - highest);
      total += weight;
      add(sum, weight, v.data + (begin + n) * v.position, v.feature, value_size);
    }
  }
  for (int64_t f = 0; total > 0 && f < value_size; ++f) sum[f] /= total;
}

static int32_t run(const void* kernel, const graft_run_context* context,
                   const graft_tensor* const* inputs, uint64_t num_inputs,
                   graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message) {
  (void)num_inputs, (void)num_outputs, (void)message;
  const struct kernel* k = kernel;
  const int64_t size = inputs[0]->shape[3];
  struct job j = {inputs[0],
                  inputs[1],
                  inputs[2],
                  graft_data(outputs[0]),
                  k->scale != 0 ? k->scale : 1 / sqrtf((float)(size > 0 ? size : 1)),
                  k->causal};
  if (graft_elements(outputs[0]) == 0) return GRAFT_OK;
  const int64_t rows = inputs[0]->shape[0] * inputs[0]->shape[1] * inputs[0]->shape[2];
  return graft_parallel(context, (uint64_t)rows, &task, &j);
}

GRAFT_C_PLUGIN(operators, NULL, &create, &infer, NULL, &run, &destroy);
