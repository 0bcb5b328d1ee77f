// Package kernels carries the headers that CUDA variants of plugins are built with; they travel in the binary.
package kernels

import "embed"

// Headers are those of the folder device.
//
//go:embed device/*.h device/*.cuh
var Headers embed.FS
