//go:build !linux

package isolation

import (
	"errors"
	"os"
	"runtime"
	"time"
)

// A region is memory that a worker shares, which only Linux has.
type region struct {
	file  *os.File
	bytes []byte
}

func newRegion(string, int64, bool) (*region, error) {
	return nil, errors.New("there is no memory to share with a worker on " + runtime.GOOS)
}

func mapped(int, int64, int) ([]byte, error) { return newMapping() }

func newMapping() ([]byte, error) {
	_, err := newRegion("", 0, false)
	return nil, err
}

func (r *region) close() {}

func (r *region) give([]byte) {}

const (
	protRead      = 0
	protReadWrite = 0
)

func await(*uint32, uint32, time.Duration) {}

func wake(*uint32) {}
