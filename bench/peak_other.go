//go:build !amd64

package main

// arithmetics are none: the peak is not known.
func arithmetics() (floats, integers []arithmetic) { return nil, nil }
