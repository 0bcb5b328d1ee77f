package inputs

import (
	"archive/zip"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/base/npy"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// WriteNPZ writes tensors to a numpy archive, whole or not at all, as Options.File reads it. The types are those that
// numpy and ml_dtypes have.
func WriteNPZ(path string, values map[string]*ort.Value) error {
	return storage.WriteFrom(path, storage.Shared, func(to io.Writer) error {
		z := zip.NewWriter(to)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
			if err != nil {
				return err
			}
			if err := writeNPY(w, values[name]); err != nil {
				return fmt.Errorf("%s: %s: %w", path, name, err)
			}
		}
		return z.Close()
	})
}

// numpyType is the name of an element type in numpy, "" where it has none.
func numpyType(e ort.ElementType) string {
	for name, t := range npyTypes {
		if ort.ElementType(t) == e && t != onnx.Tensor_UNDEFINED {
			return name
		}
	}
	return ""
}

// Numpy says whether numpy has an element type.
func Numpy(e ort.ElementType) bool { return numpyType(e) != "" }

func writeNPY(to io.Writer, v *ort.Value) error {
	descr := numpyType(v.Element())
	if v.Kind() != ort.KindTensor || descr == "" {
		return fmt.Errorf("numpy has no %s of %s", v.Kind(), v.Element())
	}
	data, err := v.Bytes()
	if err != nil {
		return err
	}
	head := npy.Header{Type: descr, Shape: v.Shape()}.Append(nil, 0)
	for _, part := range [][]byte{head, data} {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}
