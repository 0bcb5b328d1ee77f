package npy

import (
	"bytes"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestHeader(t *testing.T) {
	for _, c := range []struct {
		header Header
		text   string // as numpy 2.4.6 writes it
	}{
		{Header{Type: "<f4"}, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"},
		{Header{Type: "<i8", Shape: []int64{3}}, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }"},
		{Header{Type: "|b1", Shape: []int64{2, 0}}, "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 0), }"},
		{Header{Type: "<f4", Fortran: true, Shape: []int64{2, 3, 4}},
			"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4), }"},
	} {
		b := c.header.Append(nil, 0)
		if len(b)%64 != 0 || !bytes.HasPrefix(b[10:], []byte(c.text)) || b[len(b)-1] != '\n' {
			t.Errorf("%q, want %q", b, c.text)
		}
		must.Equal(t, must.Value(ReadHeader(bytes.NewReader(b)))(t), c.header, c.text)
		must.Equal(t, len(c.header.Append(nil, 256)), 256)
	}
	// Quotes and order of keys are the writer's choice.
	other := `{"shape": (2, 1), "fortran_order":True, "descr": "<f8"}`
	b := append([]byte(Magic+"\x02\x00"), byte(len(other)), 0, 0, 0)
	must.Equal(t, must.Value(ReadHeader(bytes.NewReader(append(b, other...))))(t),
		Header{Type: "<f8", Fortran: true, Shape: []int64{2, 1}})
}

// TestRows: np.asfortranarray(np.arange(n).reshape(shape)).
func TestRows(t *testing.T) {
	for _, c := range []struct {
		shape      []int64
		data, want string
	}{
		{[]int64{2, 3}, "031425", "012345"},
		{[]int64{2, 1, 3}, "031425", "012345"},
		{[]int64{2, 2, 3}, "0639174a285b", "0123456789ab"},
		{[]int64{4}, "0123", "0123"},
		{[]int64{0, 3}, "", ""},
	} {
		got := Header{Fortran: true, Shape: c.shape}.Rows([]byte(c.data), 1)
		must.Equal(t, string(got), c.want, c.shape)
	}
	must.Equal(t, string(Header{Fortran: true, Shape: []int64{2, 2}}.Rows([]byte("aaccbbdd"), 2)), "aabbccdd")
	must.Equal(t, string(Header{Shape: []int64{2, 2}}.Rows([]byte("abcd"), 1)), "abcd")
}
