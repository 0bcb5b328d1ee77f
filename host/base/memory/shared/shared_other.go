//go:build !linux

package shared

// Region is memory that processes share.
type Region struct{}

// Open shares nothing here.
func Open(Content) (*Region, error) { return nil, own("this system has no sealed memory files") }

// Available says why nothing is shared here.
func Available() error { return own("this system has no sealed memory files") }

// Bytes are none.
func (*Region) Bytes() []byte { return nil }

// Discard does nothing.
func (*Region) Discard([]byte) {}

// Close does nothing.
func (*Region) Close() error { return nil }
