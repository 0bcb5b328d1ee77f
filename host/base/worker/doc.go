// Package worker runs native code that is not trusted yet in a child process, so that a crash, a hang or
// an exit in it is an error value in this one.
//
// The child is this same executable with the hidden subcommand "worker" (a program calls Main first thing
// to be able to be one), else the graft executable beside this program or on PATH. The two talk JSON over
// two pipes. What a child can do is a table of named tasks, so this package knows nothing of plugins.
//
// On Linux a guard stands between the two, and the child is held by layers, each of which is put up where the
// system allows it; [Child.Layers] says which hold:
//
//   - namespaces of its own: no network, no view of other processes, and all it started ends with it;
//   - read-only file systems, and Landlock: it writes no file but in [Options.Scratch], where there is one;
//   - no new privileges, and none of root's but to read files;
//   - a filter of system calls: no other processes, no signals to any, no sockets, nothing an administrator does;
//   - limits on memory, threads, open files and their size; no core file.
//
// Without namespaces the guard is the parent of what the child left behind, finds it and ends it. It ends with
// its own parent, however that ends. Address space is not bounded: the Go runtime, the race detector and GPU
// drivers all reserve far more of it than they use; what is writable and what is in use is.
//
// This package waits for no pipe's other end and no answer beyond a deadline. The layers keep a first run from
// doing harm by accident and from most harm by intent; a library that is accepted runs with its program's rights.
package worker
