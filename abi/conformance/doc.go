// Package conformance checks that a plugin follows the rules of the C ABI, on the cases of its own manifest:
// right answers within guarded memory, at any alignment, through strides where it takes them, from several
// threads on one kernel, and shapes that agree whether sizes are known or not.
//
// Command run is the harness for plugin authors.
package conformance
