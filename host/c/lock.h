// Locks that a child of fork finds open: threads that held them are not there.
#ifndef GRAFT_C_LOCK_H_
#define GRAFT_C_LOCK_H_

#include <pthread.h>

namespace graft {

class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

}  // namespace graft

#endif  // GRAFT_C_LOCK_H_
