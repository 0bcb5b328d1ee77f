// A program that makes a session by ONNX Runtime's C API and says how many inputs its model has.
#include <dlfcn.h>
#include <stdio.h>

#include "onnxruntime_c_api.h"

static const OrtApi* api;

static void check(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", api->GetErrorMessage(status));
  _Exit(1);
}

int main(int count, char** arguments) {
  void* library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (library == NULL) return 2;
  const OrtApiBase* (*base)(void) = (const OrtApiBase* (*)(void))dlsym(library, "OrtGetApiBase");
  api = base()->GetApi(18);
  OrtEnv* env;
  OrtSession* session;
  size_t inputs;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "program", &env));
  check(api->CreateSession(env, arguments[2], NULL, &session));
  check(api->SessionGetInputCount(session, &inputs));
  printf("%zu inputs\n", inputs);
  api->ReleaseSession(session);
  api->ReleaseEnv(env);
  return 0;
}
