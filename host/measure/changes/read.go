package changes

import (
	"encoding/json"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
)

// maxBytes bounds a result's file.
const maxBytes = 256 << 20

// Read reads a file of graft ab -o json.
func Read(path string) (m Measured, err error) {
	data, err := storage.ReadRegular(path, maxBytes)
	if err != nil {
		return m, &diagnostic.Error{Path: path, Found: "cannot read the result: " + diagnostic.Cause(err),
			Needed: "a file of graft ab -o json", Cause: err}
	}
	var head struct {
		Batch json.RawMessage `json:"batch"` // results of generations have it, and no other does
	}
	if json.Unmarshal(data, &head) == nil && head.Batch != nil {
		m.Generations, err = generations.Read(path, data)
	} else {
		m.Result, err = comparison.Read(path, data)
	}
	return m, err
}
