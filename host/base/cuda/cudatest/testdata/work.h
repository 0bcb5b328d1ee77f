// What streams do when somebody waits for them.
#pragma once

#include "state.h"

static void run_until(struct stream *s, size_t end);

static void run_kernel(const struct operation *op) {
  const struct function *f = op->function;
  CUdeviceptr address;
  memcpy(&address, op->arguments[0], sizeof address);
  if (!strcmp(f->name, "scale")) {
    CUdeviceptr x_address;
    float a;
    uint32_t n;
    memcpy(&x_address, op->arguments[1], 8);
    memcpy(&a, op->arguments[2], 4);
    memcpy(&n, op->arguments[3], 4);
    if (n > op->grid * op->block) n = op->grid * op->block;
    if (n == 0) return;
    if (!is_memory(address, 4ull * n) || !is_memory(x_address, 4ull * n)) {
      complain("scale: no memory where its arguments point");
      return;
    }
    float *out = (float *)on_host(address), *x = (float *)on_host(x_address);
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] * a + (float)i;
  } else if (!strcmp(f->name, "parameters")) {
    static const int places[] = {0, 0, 2, 4, 8, 16, 24, 40};
    if (!is_memory(address, 48)) {
      complain("parameters: no memory where its argument points");
      return;
    }
    for (int i = 1; i < f->parameters; i++) {
      memcpy(on_host(address) + places[i], op->arguments[i], f->sizes[i]);
    }
  } else if (!strcmp(f->name, "reverse")) {
    uint32_t *data = (uint32_t *)on_host(address);
    if (!is_memory(address, 4ull * op->grid * op->block)) {
      complain("reverse: no memory where its argument points");
      return;
    }
    for (unsigned b = 0; b < op->grid; b++, data += op->block) {
      for (unsigned i = 0; i < op->block / 2; i++) {
        uint32_t other = data[i];
        data[i] = data[op->block - 1 - i];
        data[op->block - 1 - i] = other;
      }
    }
  }
}

static void run(struct operation *op) {
  now += 0.25;
  switch (op->type) {
    case COPY:
      memcpy(op->to, op->from, op->count);
      break;
    case SET8:
      memset(op->to, (int)op->value, op->count);
      break;
    case SET32:
      for (size_t i = 0; i < op->count; i++) memcpy(op->to + 4 * i, &op->value, 4);
      break;
    case LAUNCH:
      run_kernel(op);
      break;
    case RECORD:
      op->event->reached = true;
      op->event->time = now;
      break;
    case WAIT:
      run_until(op->stream, op->until);
      break;
  }
}

static void run_until(struct stream *s, size_t end) {
  while (s->done < end && s->done < s->length) run(&s->queue[s->done++]);
}

static void run_all(bool non_blocking_too) {
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind != STREAM || !objects[i].alive) continue;
    struct stream *s = (struct stream *)objects[i].data;
    if (non_blocking_too || !s->flags) run_until(s, s->length);
  }
}

// put queues work; the default stream waits for the others and does not wait itself.
static void put(CUstream s, struct operation op) {
  if (!s) {
    run_all(false);
    run(&op);
    return;
  }
  s->queue = realloc(s->queue, (s->length + 1) * sizeof op);
  s->queue[s->length++] = op;
}

static bool is_stream(CUstream s) { return !s || exactly(STREAM, s); }
