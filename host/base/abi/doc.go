// Package abi is the Go mirror of abi/graft_plugin.h and abi/graft_cache.h: the structs and constants
// through which the host and a plugin's library talk, laid out as C lays them out, the format of the ELF
// note, and the layout of the KV cache that operators attend over.
//
// The mirror is generated; what stands beside it turns C strings and arrays into Go's. Structs of this
// package that are handed to a library must stay reachable, and at one address, until the call returns.
package abi

//go:generate sh -c "cd ../../.. && go run ./abi/gen"
