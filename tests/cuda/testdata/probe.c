/* Loads a plugin's library and asks it about the first CUDA device: prints the score and the
 * reason. */
#include <dlfcn.h>
#include <stdio.h>

#include "graft_plugin.h"

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "usage: probe LIBRARY: %s\n", argc == 2 ? dlerror() : "one argument");
    return 2;
  }
  const graft_plugin* (*entry)(void) =
      (const graft_plugin* (*)(void))dlsym(library, GRAFT_PLUGIN_SYMBOL);
  if (entry == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  char text[1024] = "";
  const graft_device device = {GRAFT_DEVICE_CUDA, 0};
  graft_probe_result result = {.size = sizeof result, .score = -1};
  graft_message message = {.size = sizeof message, .text = text, .capacity = sizeof text};
  const int code = entry()->probe(&device, &result, &message);
  printf("%d %d %s\n", code, result.score, text);
  return 0;
}
