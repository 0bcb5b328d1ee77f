package model

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Origin says which bytes a tensor has: the file, by what tells its content apart, and where in it they lie. Two
// tensors of one origin have the same bytes. lasting says that this holds in later processes too: no other content
// can come to have the origin. That is not so of a file that changed just now, nor of a model that is not in a file.
func (m *Model) Origin(t *onnx.Tensor) (origin string, lasting bool, err error) {
	ref, refers, err := m.reference(t)
	if err != nil {
		return "", false, located(err, m.shown())
	}
	if origin, err = m.origin(t); err != nil {
		return "", false, located(err, m.shown())
	}
	switch {
	case !refers:
		return origin, true, nil // its bytes
	case ref.src.path == "":
		return origin, false, nil
	}
	return fmt.Sprintf("%s as %d", origin, ref.field), identityOf(ref.src.info).Lasting(), nil
}
