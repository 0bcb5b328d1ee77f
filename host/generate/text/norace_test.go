//go:build !race

package text

const compareEvery = 1

// allocatedTimes is how many times its size a text may allocate.
const allocatedTimes = 60
