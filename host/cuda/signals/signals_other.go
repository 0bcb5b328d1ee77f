//go:build !(linux && (amd64 || arm64))

package signals

// Preserve calls f.
func Preserve(f func()) { f() }
