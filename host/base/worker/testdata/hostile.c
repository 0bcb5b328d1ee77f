// What native code may do to a process that runs it, one function each. Each takes a number of the
// test's and gives one back.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static long forever(void) {
  for (;;) pause();
}

long succeed(long x) { return x; }

// A daemon holds every pipe open; the process that made it goes on.
long daemonise(long x) {
  pid_t pid = fork();
  if (pid < 0) return -1;
  if (pid == 0) {
    setsid();
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) forever();
    _exit(0);
  }
  return x;
}

// A daemon holds every pipe open; the process that made it ends.
long abandon(long x) {
  daemonise(x);
  _exit(0);
}

// Each of a few generations leaves its group and multiplies.
long multiply(long generations) {
  for (int i = 0; i < 3; ++i) {
    pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
      setsid();
      if (generations > 1) multiply(generations - 1);
      forever();
    }
  }
  return 0;
}

long execute(long x) {
  execl("/bin/true", "true", NULL);
  return -x;
}

long stop(long x) {
  raise(SIGSTOP);  // kill may return first, where another thread takes the signal
  return x;
}

long deaf(long x) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  for (int s = 1; s < 32; ++s) signal(s, SIG_IGN);
  for (volatile long i = x; i; ++i) {
  }
  return 0;
}

static void* spin(void* unused) {
  for (volatile int hang = 1; hang;) {
  }
  return unused;
}

long busy(long threads) {
  for (long i = 0; i < threads; ++i) {
    pthread_t t;
    pthread_create(&t, NULL, spin, NULL);
  }
  return forever();
}

static void* rest(void* unused) {
  forever();
  return unused;
}

// It returns where the system allows no more.
long swarm(long x) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 16384);
  for (pthread_t t; pthread_create(&t, &small, rest, NULL) == 0;) {
  }
  return x;
}

long deafen(long x) {
  for (int fd = 0; fd < 1024; ++fd) close(fd);
  forever();
  return x;
}

long chatter(long x) {
  char junk[65536];
  memset(junk, 'x', sizeof junk);
  while (write(2, junk, sizeof junk) > 0) {
  }
  forever();
  return x;
}

// How many files it could make, of those it tried.
long litter(long x) {
  const char* folders[] = {".", getenv("TMPDIR"), "/tmp", "/dev/shm", getenv("HOME")};
  long made = 0;
  for (unsigned i = 0; i < sizeof folders / sizeof *folders; ++i) {
    char path[4096];
    if (!folders[i]) continue;
    snprintf(path, sizeof path, "%s/graft-litter-%ld", folders[i], x);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    if (fd < 0) continue;
    unlink(path);
    close(fd);
    ++made;
  }
  return made;
}

// How many MiB it got.
long hoard(long at_most) {
  for (long got = 0; got < at_most; ++got) {
    char* p = malloc(1 << 20);
    if (!p) return got;
    memset(p, 1, 1 << 20);
  }
  return at_most;
}

long share(long at_most) {
  for (long got = 0; got < at_most; ++got) {
    char* p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) break;
    memset(p, 1, 1 << 20);
    usleep(500);
  }
  return forever();
}

long signal_parent(long x) { return x + kill(getppid(), SIGURG); }

long signal_all(long x) { return x + kill(-1, 0); }

long signal_process(long pid) { return kill(pid, SIGURG); }

long trace_process(long pid) { return ptrace(PTRACE_SEIZE, pid, NULL, NULL); }

long write_process(long pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/mem", pid);
  return open(path, O_RDWR);
}

long outlive(long x) { return x + prctl(PR_SET_PDEATHSIG, 0); }

long leave_namespaces(long x) { return x + unshare(CLONE_NEWUSER); }

long old_call(long x) {
#ifdef __x86_64__
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(20L /* getpid of 32-bit programs */)
                   : "memory");
  return result;
#else
  (void)x;
  kill(1, 0);
  return 0;
#endif
}

// 0 when it reached a port of this machine.
long reach(long port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0) return -1;
  return connect(fd, (struct sockaddr*)&to, sizeof to);
}

// Sends to the socket at the path in GRAFT_TEST_SOCKET, without a call of connect.
long whisper(long type) {
  int pair[2] = {-1, -1};
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strncpy(to.sun_path, getenv("GRAFT_TEST_SOCKET"), sizeof to.sun_path - 1);
  sendto(socket(AF_UNIX, (int)type | SOCK_CLOEXEC, 0), "x", 1, 0, (struct sockaddr*)&to, sizeof to);
  socketpair(AF_UNIX, (int)type, 0, pair);
  return sendto(pair[0], "x", 1, 0, (struct sockaddr*)&to, sizeof to) * 0;
}

// As NVIDIA's driver does when it starts: 0 when it listens on an abstract Unix socket.
long hear(long family) {
  struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "\0graft-test"};
  int fd = socket((int)family, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  return bind(fd, (struct sockaddr*)&at, sizeof(sa_family_t) + sizeof "graft-test") || listen(fd, 1)
             ? -2
             : 0;
}

long crash(long x) { return *(volatile int*)(x - x); }

long give_up(long x) {
  if (x) abort();
  return x;
}
