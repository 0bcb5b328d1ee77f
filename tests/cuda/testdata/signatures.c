/* Compares the operators of two libraries of a plugin: signatures VARIANT OTHER. Prints a line for
 * each thing in which an operator of VARIANT differs from that of OTHER as a model's node sees it;
 * element types and where tensors lie may differ. Operators that OTHER alone has are none of its
 * business. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft_plugin.h"

static const graft_plugin_info* Describe(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const graft_plugin* (*entry)(void) = NULL;
  if (library != NULL) entry = (const graft_plugin* (*)(void))dlsym(library, GRAFT_PLUGIN_SYMBOL);
  if (entry == NULL) {
    fprintf(stderr, "%s: %s\n", path, dlerror());
    exit(2);
  }
  return entry()->describe();
}

static const graft_operator* Find(const graft_plugin_info* info, const char* name) {
  for (uint32_t i = 0; i < info->num_operators; ++i) {
    if (strcmp(info->operators[i]->name, name) == 0) return info->operators[i];
  }
  return NULL;
}

static void CompareParameters(const char* operator_name, const char* what,
                              const graft_parameter* const* a, uint32_t num_a,
                              const graft_parameter* const* b, uint32_t num_b) {
  const uint32_t shape = GRAFT_PARAMETER_OPTIONAL | GRAFT_PARAMETER_VARIADIC;
  if (num_a != num_b) {
    printf("%s has %u %ss, the other %u\n", operator_name, num_a, what, num_b);
    return;
  }
  for (uint32_t i = 0; i < num_a; ++i) {
    if (strcmp(a[i]->name, b[i]->name) != 0) {
      printf("%s: %s %u is %s, the other's %s\n", operator_name, what, i, a[i]->name, b[i]->name);
    }
    if ((a[i]->flags & shape) != (b[i]->flags & shape) || a[i]->min_count != b[i]->min_count) {
      printf("%s: %s %s is optional or variadic in one alone\n", operator_name, what, a[i]->name);
    }
  }
}

static int SameValue(const graft_attribute* a, const graft_attribute* b) {
  static const size_t element[] = {[GRAFT_ATTRIBUTE_STRING] = 1,
                                   [GRAFT_ATTRIBUTE_INTS] = sizeof(int64_t),
                                   [GRAFT_ATTRIBUTE_FLOATS] = sizeof(float)};
  if (a->kind != b->kind || a->flags != b->flags) return 0;
  if (a->kind == GRAFT_ATTRIBUTE_INT) return a->int_value == b->int_value;
  if (a->kind == GRAFT_ATTRIBUTE_FLOAT) return a->float_value == b->float_value;
  return a->count == b->count &&
         (a->count == 0 || memcmp(a->data, b->data, a->count * element[a->kind]) == 0);
}

static void CompareAttributes(const graft_operator* a, const graft_operator* b) {
  if (a->num_attributes != b->num_attributes) {
    printf("%s has %u attributes, the other %u\n", a->name, a->num_attributes, b->num_attributes);
  }
  for (uint32_t i = 0; i < a->num_attributes; ++i) {
    const graft_attribute* same = NULL;
    for (uint32_t k = 0; k < b->num_attributes; ++k) {
      if (strcmp(a->attributes[i]->name, b->attributes[k]->name) == 0) same = b->attributes[k];
    }
    if (same == NULL) {
      printf("%s: the other has no attribute %s\n", a->name, a->attributes[i]->name);
    } else if (!SameValue(a->attributes[i], same)) {
      printf("%s: attribute %s has another kind or default\n", a->name, a->attributes[i]->name);
    }
  }
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: signatures VARIANT OTHER\n");
    return 2;
  }
  const graft_plugin_info *variant = Describe(argv[1]), *other = Describe(argv[2]);
  for (uint32_t i = 0; i < variant->num_operators; ++i) {
    const graft_operator* a = variant->operators[i];
    const graft_operator* b = Find(other, a->name);
    if (b == NULL) {
      printf("%s: the other has no such operator\n", a->name);
      continue;
    }
    CompareParameters(a->name, "input", a->inputs, a->num_inputs, b->inputs, b->num_inputs);
    CompareParameters(a->name, "output", a->outputs, a->num_outputs, b->outputs, b->num_outputs);
    CompareAttributes(a, b);
    if (a->since_version != b->since_version) printf("%s has another version\n", a->name);
  }
  return 0;
}
