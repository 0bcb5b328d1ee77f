package sessions

import (
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort/session"
)

// spared is the part of the memory that the system has left which a copy of a model may take: one in spared.
const spared = 4

// plain holds what a program's model can be made from again. A file is named, and must not have changed when it is
// asked for. Bytes may be gone by then: they are copied, to memory outside of Go's heap.
func plain(m *model.Model, r session.Request) (*session.Plain, error) {
	files, err := m.Files()
	if err != nil {
		return nil, err
	}
	if r.Path != "" {
		return &session.Plain{Model: func() ([]byte, func() error, error) {
			return nil, files.Unchanged,
				files.Unchanged()
		}}, nil
	}
	size := int64(len(r.Model))
	if left := memory.Available(); left > 0 && size > left/spared {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("a copy of the model's bytes takes %d bytes", size),
			Needed: fmt.Sprintf("at most %d, one %dth of the memory that is left", left/spared, spared),
			Fix:    "make the session from the model's file"}
	}
	region, err := memory.Reserve(size)
	if err != nil {
		return nil, err
	}
	bytes := region.Bytes()[:size]
	copy(bytes, r.Model)
	return &session.Plain{
		Model:   func() ([]byte, func() error, error) { return bytes, files.Unchanged, files.Unchanged() },
		Release: func() { _ = region.Close() }, // nothing can be done about memory that stays
	}, nil
}
