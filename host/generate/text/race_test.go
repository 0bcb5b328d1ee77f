//go:build race

package text

// compareEvery: under the race detector a fifth of the lines, for time;
// TestConcurrent is what it watches.
const compareEvery = 5

// allocatedTimes: under the race detector more is allocated, and nothing in place.
const allocatedTimes = 180
