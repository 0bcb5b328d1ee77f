//go:build unix && !linux

package cache

const noReserve = 0
