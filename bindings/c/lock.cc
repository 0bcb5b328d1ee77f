#include "lock.h"

namespace graft {

pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t seal_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;

namespace {

void BeforeFork() {
  // Where it is held, ONNX Runtime initializes what it never would again in the child.
  pthread_mutex_lock(&domain_lock);
  pthread_mutex_lock(&state_lock);
}
void InParent() {
  pthread_mutex_unlock(&state_lock);
  pthread_mutex_unlock(&domain_lock);
}
void InChild() {
  InParent();
  attach_lock = ask_lock = open_lock = seal_lock = PTHREAD_MUTEX_INITIALIZER;
}

}  // namespace

void WatchForks() { pthread_atfork(&BeforeFork, &InParent, &InChild); }

}  // namespace graft
