//go:build !race

package text

const compareEvery = 1
