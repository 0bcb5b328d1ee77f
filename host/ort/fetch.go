package ort

import (
	"context"

	"github.com/opgraft/graft/host/ort/fetch"
)

// CacheDir is the folder that [Fetch] fills and [Find] looks into.
func CacheDir() (string, error) { return fetch.Dir() }

// Fetch makes sure that the user's cache holds the pinned ONNX Runtime, its checksum verified,
// and returns the library's path. report, if not nil, is told what is being done, a line at a
// time. See package fetch.
func Fetch(ctx context.Context, report func(string)) (string, error) {
	return fetch.Runtime(ctx, report)
}
