// Package worker runs native code that is not trusted yet in a child process, so that a crash, a hang or
// an exit in it is an error value in this one.
//
// The child is this same executable with the hidden subcommand "worker" (a program calls Main first thing
// to be able to be one), else the graft executable beside this program or on PATH. The two talk net/rpc
// over hashicorp/go-plugin. What a child can do is a table of named tasks, so this package knows nothing
// of plugins.
//
// On Linux the child has a process group of its own, dies with its parent, and leaves no core file. It has
// no limit on its address space: the Go runtime, the race detector and GPU drivers all reserve far more of
// it than they use.
package worker
