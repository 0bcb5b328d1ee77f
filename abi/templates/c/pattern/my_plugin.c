/* Mish in one pass over memory: y = x tanh(log(1 + exp(x))) (Misra, 2019).
 *
 * With e = exp(x) that is x n / (n + 2), n = e (e + 2): one exponential in place of three
 * functions. */
#include "graft_c.h"

#if defined(__x86_64__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* exp(x) for x from -80 to 40 or so, to float's precision: 2^k by the exponent's bits, times a
 * polynomial. */
static inline float exponential(float x) {
  const float scaled = (x > -80.0f ? x : -80.0f) * 1.44269504f;
  const float shifted = scaled + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
  const float r = (scaled - (shifted - 12582912.0f)) * 0.693147181f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  union {
    float number;
    int32_t bits;
  } power = {shifted};
  power.bits = (int32_t)((uint32_t)(power.bits - 0x4b400000 + 127) << 23);
  return p * power.number;
}

FOR_EACH_CPU static void mish(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float e = exponential(x[i] < 20.0f ? x[i] : 20.0f); /* from there on n / (n + 2) is 1 */
    const float n = e * (e + 2.0f);
    y[i] = x[i] * (n / (n + 2.0f));
  }
}

static const graft_data_type float32[] = {GRAFT_FLOAT32};
static const graft_parameter input_x = GRAFT_C_PARAMETER("x", float32, 0);
static const graft_parameter output_y = GRAFT_C_PARAMETER("y", float32, 0);
static const graft_parameter* const my_inputs[] = {&input_x};
static const graft_parameter* const my_outputs[] = {&output_y};
static const graft_operator my_operator = {sizeof my_operator,
                                           NULL,
                                           "MyPlugin",
                                           "x tanh(softplus(x))",
                                           my_inputs,
                                           my_outputs,
                                           NULL,
                                           1,
                                           1,
                                           0,
                                           1};
static const graft_operator* const operators[] = {&my_operator};

static int32_t create(const graft_create_request* request, void** kernel, graft_message* message) {
  (void)request, (void)message;
  *kernel = NULL; /* nothing to remember of a node */
  return GRAFT_OK;
}

static int32_t infer(const void* kernel, const graft_tensor* const* inputs, uint64_t num_inputs,
                     graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message) {
  (void)kernel, (void)num_inputs, (void)num_outputs, (void)message;
  graft_like(outputs[0], inputs[0]);
  return GRAFT_OK;
}

enum { chunk = 16384 };

struct job {
  const float* x;
  float* y;
  int64_t count;
};

static void task(void* argument, uint64_t i) {
  const struct job* j = argument;
  const int64_t first = (int64_t)i * chunk;
  mish(j->x + first, j->y + first, j->count - first < chunk ? j->count - first : chunk);
}

static int32_t run(const void* kernel, const graft_run_context* context,
                   const graft_tensor* const* inputs, uint64_t num_inputs,
                   graft_tensor* const* outputs, uint64_t num_outputs, graft_message* message) {
  (void)kernel, (void)num_inputs, (void)num_outputs, (void)message;
  struct job j = {graft_data(inputs[0]), graft_data(outputs[0]), graft_elements(inputs[0])};
  return graft_parallel(context, (uint64_t)((j.count + chunk - 1) / chunk), &task, &j);
}

GRAFT_C_PLUGIN(operators, NULL, &create, &infer, NULL, &run, NULL);
