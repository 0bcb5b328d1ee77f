// Locks that a child of fork finds open: threads that held them are not there.
#ifndef GRAFT_C_LOCK_H_
#define GRAFT_C_LOCK_H_

#include <pthread.h>

namespace graft {

// Each is held for moments only, or is one of a few threads that wait for something long.
extern pthread_mutex_t state_lock;   // of what the library knows; the last that is taken
extern pthread_mutex_t attach_lock;  // while a runtime's table is filled
extern pthread_mutex_t ask_lock;     // while the command runs
extern pthread_mutex_t open_lock;    // while a session is made for one whose operator failed
extern pthread_mutex_t seal_lock;    // while a library is read
extern pthread_mutex_t domain_lock;  // while a runtime gets to know the domain of operators

class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

// Has forks leave the locks open in children. What state_lock and domain_lock guard is whole there.
void WatchForks();

}  // namespace graft

#endif  // GRAFT_C_LOCK_H_
