package folder

import (
	"os"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

const encoders = "../../../models/encoders"

// FuzzSafetensors: no bytes make the reader panic or take much more memory than they are.
func FuzzSafetensors(f *testing.F) {
	data := must.Value(os.ReadFile(encoders + "/dense/model.safetensors"))(f)
	f.Add(data)
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			tensors, err := parseSafetensors(data)
			for name, w := range tensors {
				n := 1
				for _, d := range w.shape {
					n *= d
				}
				if err != nil || n != len(w.values) {
					t.Errorf("%q: %v, %d values, %v", name, w.shape, len(w.values), err)
				}
			}
		})
	})
}

func TestSafetensors(t *testing.T) {
	file := func(header, data string) []byte {
		return append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+data...)
	}
	got, err := parseSafetensors(
		file(
			`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1,1],"data_offsets":[4,6]},"n":{"dtype":"I64","shape":[9],"data_offsets":[0,1]},"__metadata__":{}}`,
			"\x00\x3c\x00\xc0\x40\x3f"))
	if err != nil || len(got) != 2 || !slices.Equal(got["a"].values, []float32{1, -2}) ||
		!slices.Equal(got["b"].values, []float32{0.75}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct{ file, want string }{
		{"abc", "3 bytes, needed the header of safetensors"},
		{string(file("{}", ""))[:9], "a header of 2 bytes in a file of 9, needed one that lies in the file"},
		{string(file("[]", "")), "header: json"},
		{string(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, "1234")),
			`tensor "a" of shape [2] at [0 8] of 4 bytes, needed its bytes in the file`},
		{string(file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "1234")), `tensor "a" of shape [-1]`},
		{string(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, "1234")), `tensor "a" of shape [1] at [4 0]`},
		{string(file(`{"a":{"dtype":"F32","shape":[1000000000,1000000000,1000000000],"data_offsets":[0,4]}}`, "1234")),
			`tensor "a" of shape`},
	} {
		must.Fail(t, must.Error(parseSafetensors([]byte(c.file))), c.want)
	}
}
