#include "lock.h"

namespace graft {

pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;

namespace {

void BeforeFork() { pthread_mutex_lock(&state_lock); }
void InParent() { pthread_mutex_unlock(&state_lock); }
void InChild() {
  pthread_mutex_unlock(&state_lock);
  attach_lock = ask_lock = open_lock = domain_lock = PTHREAD_MUTEX_INITIALIZER;
}

}  // namespace

void WatchForks() { pthread_atfork(&BeforeFork, &InParent, &InChild); }

}  // namespace graft
