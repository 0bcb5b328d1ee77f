package inputs

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// archive is a .npz file of arrays in an order, names twice where they are given twice.
func archive(t testing.TB, method uint16, names []string, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range names {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = w.Write(data)
		}
		must.Succeed(t, err)
	}
	must.Succeed(t, z.Close())
	return inFile(t, b.Bytes())
}

func inFile(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inputs.npz")
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}

// TestNumpyBombs: an archive takes memory as its size says, whatever its entries say of theirs.
func TestNumpyBombs(t *testing.T) {
	zeros := func(n int) []byte { return npyOf(1, "|u1", "False", fmt.Sprint(n, ","), make([]byte, n)) }
	names := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("x%d.npy", i))
		}
		return list
	}
	lies := archive(t, zip.Store, names(1), npyOf(1, "<f8", "False", "2147483640,", nil))
	data := must.Value(os.ReadFile(lies))(t)
	at := bytes.Index(data, []byte("PK\x01\x02")) // sizes in the central directory
	binary.LittleEndian.PutUint32(data[at+20:], 0xfffffff0)
	binary.LittleEndian.PutUint32(data[at+24:], 0xfffffff0)
	binary.LittleEndian.PutUint16(data[at+10:], zip.Deflate)
	for name, c := range map[string]struct{ path, want string }{
		"zeros":    {archive(t, zip.Deflate, names(1), zeros(200<<20)), "are more than the"},
		"many":     {archive(t, zip.Deflate, names(30), zeros(8<<20)), "are more than the"},
		"its size": {inFile(t, data), "x0.npy: "},
		"twice":    {archive(t, zip.Store, []string{"x.npy", "x"}, zeros(1)), "a second array of that name"},
		"axes": {archive(t, zip.Store, names(1), npyOf(1, "|u1", "False", strings.Repeat("1,", 65), nil)),
			"is not read"},
		"zero axes": {archive(t, zip.Store, names(1), npyOf(1, "|u1", "False", "0, 9223372036854775807", nil)),
			"is not read"},
	} {
		t.Run(name, func(t *testing.T) {
			size := must.Value(os.Stat(c.path))(t).Size()
			must.CostLittle(t, int(size), func() { must.Fail(t, must.Error(readNPZ(c.path)), c.want) })
		})
	}
	must.Equal(t, len(must.Value(readNPZ(archive(t, zip.Deflate, names(1), zeros(60<<20))))(t)["x0"].data), 60<<20)
}

// TestInputsAreFiles: what is no file is refused at once.
func TestInputsAreFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "inputs.npz")
	must.Succeed(t, syscall.Mkfifo(fifo, 0o600))
	if _, err := readNPZ(fifo); err == nil {
		t.Error("a FIFO was read")
	}
}

// FuzzNPZ: no archive makes the reader panic, or takes more than its size says.
func FuzzNPZ(f *testing.F) {
	numpy := must.Value(os.ReadFile("testdata/numpy.npz"))(f)
	f.Add(numpy)
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		data := must.Value(os.ReadFile(
			archive(f, method, []string{"x.npy", "y.npy"}, npyOf(2, "<f4", "False", "2, 1", make([]byte, 8)))))(f)
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "inputs.npz")
	f.Fuzz(func(t *testing.T, data []byte) {
		must.Succeed(t, os.WriteFile(path, data, 0o644))
		must.CostLittle(t, len(data), func() {
			given, err := readNPZ(path)
			if err != nil {
				return
			}
			for name, a := range given {
				n := int64(1)
				for _, d := range a.shape {
					n *= d
				}
				if n < 0 || n > int64(len(a.data)) && len(a.data) > 0 {
					t.Errorf("%s: %d bytes for the shape %v", name, len(a.data), a.shape)
				}
			}
		})
	})
}
