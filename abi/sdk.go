// Package abi carries what a plugin is built with: the headers of the C ABI, the kits for C++, C and Rust, the CMake
// module and the templates of new plugins. They travel in the binary, so that an author needs nothing else.
package abi

import "embed"

// SDK holds what is included and linked, by its path in this folder.
//
//go:embed graft_plugin.h graft_plugin_layout.h graft_cache.h graft_ort.h kit cmake/*.cmake cmake/graft.map cmake/cpu_model.c rust
var SDK embed.FS

// Templates holds a folder for each language and kind of plugin, as templates/LANGUAGE/KIND.
//
//go:embed all:templates
var Templates embed.FS
