//go:build !(linux && (amd64 || arm64))

package signals

// Keep calls f.
func Keep(f func()) { f() }
