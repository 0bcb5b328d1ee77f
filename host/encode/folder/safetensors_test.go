package folder

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

const encoders = "../../../models/encoders"

// FuzzSafetensors: no bytes make the reader panic or take much more memory than they are.
func FuzzSafetensors(f *testing.F) {
	data := must.Value(os.ReadFile(encoders + "/dense/model.safetensors"))(f)
	f.Add(data, "linear.weight")
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"), "a")
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), "")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		must.CostLittle(t, len(data), func() {
			s := &safetensors{path: "a"}
			if s.read(bytes.NewReader(data), int64(len(data))) != nil {
				return
			}
			for axes := range 3 {
				w, err := s.take(name, slices.Repeat([]int{-1}, axes)...)
				n := 1
				for _, d := range w.shape {
					n *= d
				}
				if err == nil && n != len(w.values) {
					t.Errorf("%q: %v, %d values", name, w.shape, len(w.values))
				}
			}
		})
	})
}

func TestSafetensors(t *testing.T) {
	file := func(header, data string) []byte {
		return append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header+data...)
	}
	take := func(data []byte, shape ...int) ([]float32, error) {
		s := &safetensors{path: "f"}
		if err := s.read(bytes.NewReader(data), int64(len(data))); err != nil {
			return nil, err
		}
		w, err := s.take("a", shape...)
		return w.values, err
	}
	for _, c := range []struct {
		kind, data string
		want       []float32
	}{
		{"F16", "\x00\x3c\x00\xc0", []float32{1, -2}}, {"BF16", "\x40\x3f\x00\x00", []float32{0.75, 0}},
		{"F32", "\x00\x00\x80\x3f\x00\x00\x00\x40", []float32{1, 2}},
		{"F64", "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40", []float32{1, 2}},
		{"I64", "\x07\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", []float32{7, -1}},
		{"I32", "\x07\x00\x00\x00\xff\xff\xff\xff", []float32{7, -1}},
		{"I8", "\x07\xff", []float32{7, -1}}, {"U8", "\x07\xff", []float32{7, 255}},
	} {
		header := `{"a":{"dtype":"` + c.kind + `","shape":[2],"data_offsets":[0,` + strconv.Itoa(len(c.data)) +
			`]},"n":{"dtype":"F8","shape":[9],"data_offsets":[0,1]},"__metadata__":{}}`
		if got := must.Value(take(file(header, c.data), -1))(t); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.kind, got)
		}
	}
	for _, c := range []struct{ file, want string }{
		{"abc", "3 bytes, needed the header of safetensors"},
		{string(file("{}", ""))[:9], "a header of 2 bytes in a file of 9, needed one that lies in the file"},
		{string(file("[]", "")), "a header that is no JSON of tensors"},
		{string(file("{}", "")), "a is missing, needed [2]"},
		{string(file(`{"a":{"dtype":"F8","shape":[2],"data_offsets":[0,2]}}`, "12")), `a is of the type "F8"`},
		{string(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1234")), `a has the shape [1], needed [2]`},
		{string(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, "1234")),
			`tensor "a" of shape [2] at [0 8] of 4 bytes`},
		{string(file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "1234")), `a has the shape [-1]`},
		{string(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,0]}}`, "1234")), `tensor "a" of shape [2] at [4 0]`},
		{string(file(`{"a":{"dtype":"F32","shape":[1000000000,1000000000,1000000000],"data_offsets":[0,4]}}`, "1234")),
			`a has the shape [1000000000 1000000000 1000000000]`},
	} {
		must.Fail(t, must.Error(take([]byte(c.file), 2)), c.want)
	}
}
