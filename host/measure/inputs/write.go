package inputs

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

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
	var shape strings.Builder
	for _, n := range v.Shape() {
		fmt.Fprintf(&shape, "%d, ", n)
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr,
		strings.TrimSuffix(shape.String(), " "))
	const before = 10 // of the magic, the version and the length
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	head := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(text)))...)
	for _, part := range [][]byte{head, []byte(text), data} {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}
