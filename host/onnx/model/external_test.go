package model

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

func link(t testing.TB, to, at string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(at), 0o755))
	must.Succeed(t, os.Symlink(to, at))
}

func TestExternalDataIsFoundByOffset(t *testing.T) {
	dir := t.TempDir()
	_, w := floats(1, 2000)
	writeFile(t, filepath.Join(dir, "sub", "w.bin"), append([]byte("xyz"), w...))
	noLength := externalTensor("to the shape's end", "sub/w.bin", 3, 0, 10)
	noLength.ExternalData = noLength.ExternalData[:2]
	b := encode(t, modelOf(graphOf(
		externalTensor("w", "sub/w.bin", 3, 8000, 2000), externalTensor("short", "sub/w.bin", 3, 8, 2), noLength,
		externalTensor("none", "sub/w.bin", 8003, 0, 0))))
	m := mustOpen(t, writeFile(t, filepath.Join(dir, "m.onnx"), b))
	g := m.Proto().GetGraph()
	for i, want := range [][]byte{w, w[:8], w[:40], nil} {
		if got := mustData(t, m, g.Initializer[i]); !bytes.Equal(got, want) {
			t.Errorf("%q reads differently", g.Initializer[i].GetName())
		}
	}
	if fs := paths(m); len(fs) != 2 || filepath.Base(fs[1]) != "w.bin" {
		t.Errorf("files %v", fs)
	}
	sameContent(t, m, mustParse(t, b, dir))
	_, err := Parse(b, "")
	wantError(t, err,
		`model bytes: has external data but no folder to find it in: found location "sub/w.bin"; give Parse the folder, or open the model from its file`)
}

// In a Hugging Face cache the model and its data are links into blobs/.
func TestHuggingFaceCache(t *testing.T) {
	_, w := floats(1, 2000)
	b := encode(t, modelOf(graphOf(externalTensor("w", "model.onnx_data", 0, 8000, 2000))))
	build := func(t *testing.T) string {
		repo := filepath.Join(t.TempDir(), "models--a--b")
		writeFile(t, filepath.Join(repo, "blobs", "c0ffee"), b)
		writeFile(t, filepath.Join(repo, "blobs", "decade"), w)
		link(t, "../../../blobs/c0ffee", filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx"))
		link(t, "../../../blobs/decade", filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx_data"))
		return repo
	}
	t.Run("as it is", func(t *testing.T) {
		repo := build(t)
		m := mustOpen(t, filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx"))
		if got := mustData(t, m, m.Proto().GetGraph().Initializer[0]); !bytes.Equal(got, w) {
			t.Error("the data reads differently")
		}
		s := must.Value(m.Serialize(m.Proto(), SerializeOptions{}))(t)
		blobs, _ := filepath.EvalSymlinks(filepath.Join(repo, "blobs"))
		must.Equal(t, s.Folder, blobs)
		sameContent(t, m, mustParse(t, s.Bytes, s.Folder))
	})
	t.Run("by a relative path", func(t *testing.T) {
		repo := build(t)
		t.Chdir(filepath.Join(repo, "snapshots", "1", "onnx"))
		m := mustOpen(t, "model.onnx")
		t.Chdir("/")
		if got := mustData(t, m, m.Proto().GetGraph().Initializer[0]); !bytes.Equal(got, w) {
			t.Error("the data reads differently after a change of folder")
		}
	})
	t.Run("the snapshot folder is a link too", func(t *testing.T) {
		repo := build(t)
		link(t, filepath.Join(repo, "snapshots", "1", "onnx"), filepath.Join(repo, "current"))
		m := mustOpen(t, filepath.Join(repo, "current", "model.onnx"))
		mustData(t, m, m.Proto().GetGraph().Initializer[0])
	})
	t.Run("data that lies beside the link", func(t *testing.T) {
		repo := build(t)
		beside := filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx_data")
		must.Succeed(t, os.Remove(beside))
		writeFile(t, beside, w)
		inline := encode(t, modelOf(
			graphOf(externalTensor("w", "model.onnx_data", 0, 8000, 2000), rawTensor("v", onnx.Tensor_FLOAT, w, 2000))))
		writeFile(t, filepath.Join(repo, "blobs", "c0ffee"), inline)
		m := mustOpen(t, filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx"))
		s := must.Value(m.Serialize(m.Proto(), SerializeOptions{}))(t)
		if root, _ := filepath.EvalSymlinks(repo); s.Folder != root {
			t.Errorf("folder %s, want %s, which holds both", s.Folder, root)
		}
		sameContent(t, m, mustParse(t, s.Bytes, s.Folder))
	})
	t.Run("only the model is a link", func(t *testing.T) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "far", "model.onnx"), b)
		writeFile(t, filepath.Join(dir, "far", "model.onnx_data"), w)
		link(t, "../far/model.onnx", filepath.Join(dir, "near", "m.onnx"))
		m := mustOpen(t, filepath.Join(dir, "near", "m.onnx"))
		mustData(t, m, m.Proto().GetGraph().Initializer[0])
	})
	// Newer versions of the library have a store of all repositories, to which some blobs are links.
	for name, shared := range map[string][]string{"all in the store": {"c0ffee", "decade"},
		"the model in the store": {"c0ffee"}, "the data in the store": {"decade"}} {
		t.Run(name, func(t *testing.T) {
			repo := build(t)
			store := filepath.Join(filepath.Dir(repo), "blobs")
			for i, blob := range shared {
				at := filepath.Join(store, "0"+strconv.Itoa(i), "0"+strconv.Itoa(i)+"feed")
				data, err := os.ReadFile(filepath.Join(repo, "blobs", blob))
				if err == nil {
					err = os.Remove(filepath.Join(repo, "blobs", blob))
				}
				must.Succeed(t, err)
				writeFile(t, at, data)
				link(t, "../../blobs/0"+strconv.Itoa(i)+"/0"+strconv.Itoa(i)+"feed", filepath.Join(repo, "blobs", blob))
			}
			path := filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx")
			must.Fail(t, must.Error(Open(path)), "external data leads out of the model's folder")
			writeFile(t, filepath.Join(store, ".huggingface-shared-blobs"), []byte("1\n"))
			m := mustOpen(t, path)
			if got := mustData(t, m, m.Proto().GetGraph().Initializer[0]); !bytes.Equal(got, w) {
				t.Error("the data reads differently")
			}
			data := filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx_data")
			must.Succeed(t, os.Remove(data))
			link(t, writeFile(t, filepath.Join(t.TempDir(), "secret"), w), data)
			must.Fail(t, must.Error(Open(path)), "external data leads out of the model's folder")
		})
	}
	t.Run("data that leads out", func(t *testing.T) {
		repo := build(t)
		data := filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx_data")
		secret, _ := filepath.EvalSymlinks(writeFile(t, filepath.Join(t.TempDir(), "secret"), w))
		must.Succeed(t, os.Remove(data))
		link(t, secret, data)
		path := filepath.Join(repo, "snapshots", "1", "onnx", "model.onnx")
		_, err := Open(path)
		repo, _ = filepath.EvalSymlinks(repo)
		wantError(t, err, path+`: external data leads out of the model's folder: found "model.onnx_data" at `+secret+
			", needed a file in "+repo+"/snapshots/1/onnx or "+repo+"/blobs; copy the file into the model's folder")
	})
}

func TestHostileExternalData(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "w.bin"), make([]byte, 100))
	writeFile(t, filepath.Join(dir, "..hidden"), make([]byte, 8))
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	path := filepath.Join(dir, "m.onnx")
	const untrusted = "needed a path inside the model's folder; do not trust this model, or save it anew with its data " +
		"beside it"
	const again = "; the file is damaged or incomplete: fetch or export it again"
	with := func(key, value string) *onnx.Tensor {
		x := externalTensor("w", "w.bin", 0, 8, 2)
		for _, e := range x.ExternalData {
			if e.GetKey() == key {
				e.Value = proto.String(value)
			}
		}
		return x
	}
	location := func(s string) *onnx.Tensor { return with("location", s) }
	text := externalTensor("w", "w.bin", 0, 8, 2)
	text.DataType = proto.Int32(int32(onnx.Tensor_STRING))
	const notAllowed = "external data has a location that is not allowed: found "
	cases := []struct {
		name   string
		tensor *onnx.Tensor
		want   string
	}{
		{"upwards", location("../w.bin"), notAllowed + `"../w.bin", which leads upwards, ` + untrusted},
		{"upwards inside", location("folder/../w.bin"), notAllowed + `"folder/../w.bin", which leads upwards, ` + untrusted},
		{"upwards with backslashes", location(`folder\..\w.bin`),
			notAllowed + `"folder\\..\\w.bin", which leads upwards, ` + untrusted},
		{"absolute", location("/etc/passwd"), notAllowed + `"/etc/passwd", which is absolute, ` + untrusted},
		{"drive", location(`C:\w.bin`), notAllowed + `"C:\\w.bin", which is absolute, ` + untrusted},
		{"empty", location(""), notAllowed + `"", which is empty, ` + untrusted},
		{"zero byte", location("w.bin\x00"), notAllowed + `"w.bin\x00", which holds a zero byte, ` + untrusted},
		{"address", location("*/_ORT_MEM_ADDR_/*"),
			notAllowed + `"*/_ORT_MEM_ADDR_/*", which is an address in memory, ` + untrusted},
		{"missing", location("gone"),
			`cannot find the external data file "gone": found no such file or directory; fetch the external data files of the model too, into its folder`},
		{"folder", location("folder"), `external data file "folder" is a folder, needed a file` + again},
		{"negative offset", with("offset", "-1"),
			`tensor "w" has an external data offset that makes no sense: found "-1", needed a number from 0 to 2^63-1` + again},
		{"offset no number", with("offset", "0x10"),
			`tensor "w" has an external data offset that makes no sense: found "0x10", needed a number from 0 to 2^63-1` +
				again},
		{"negative length", with("length", "-8"),
			`tensor "w" has an external data length that makes no sense: found "-8", needed a number from 0 to 2^63-1` + again},
		{"enormous length", with("length", "99999999999999999999"),
			`tensor "w" has an external data length that makes no sense: found "99999999999999999999", needed a number from 0 to 2^63-1` + again},
		{"length of another shape", with("length", "12"),
			`tensor "w" has external data of the wrong size: found 12 bytes, needed 8 for float32 [2]` + again},
		{"end beyond the file", with("offset", "93"),
			`tensor "w" lies outside its external data file: found 8 bytes at 93, needed an end at or before 100, the size of "w.bin"` + again},
		{"end overflows", with("offset", "9223372036854775807"),
			`tensor "w" lies outside its external data file: found 8 bytes at 9223372036854775807, needed an end at or before 100, the size of "w.bin"` + again},
		{"strings", text, `tensor "w" has strings in external data, needed strings in the model itself` + again},
		{"long location", location(strings.Repeat("a", 1<<14+1)),
			`tensor "w" has an external data entry that is too long: found 16385 bytes, needed at most 16384; the file is damaged or incomplete: fetch or export it again`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			writeFile(t, path, encode(t, modelOf(graphOf(c.tensor))))
			_, err := Open(path)
			wantError(t, err, path+": "+c.want)
		})
	}
	t.Run("a name that begins with dots is inside", func(t *testing.T) {
		writeFile(t, path, encode(t, modelOf(graphOf(location("..hidden")))))
		mustOpen(t, path)
	})
	t.Run("too many files", func(t *testing.T) {
		writeFile(t, filepath.Join(dir, "v.bin"), make([]byte, 8))
		writeFile(t, path, encode(t, modelOf(graphOf(location("w.bin"), location("v.bin")))))
		_, err := Open(path, Limits{ExternalFiles: 1})
		wantError(t, err, path+": has too many external data files: found more than 1, needed at most 1; raise the limit "+
			"in model.Limits if the model is trusted")
	})
	t.Run("replaced while in use", func(t *testing.T) {
		writeFile(t, path, encode(t, modelOf(graphOf(location("w.bin")))))
		m := mustOpen(t, path)
		must.Succeed(t, os.Rename(filepath.Join(dir, "v.bin"), filepath.Join(dir, "w.bin")))
		_, err := m.Data(m.Proto().GetGraph().Initializer[0])
		real, _ := filepath.EvalSymlinks(filepath.Join(dir, "w.bin"))
		wantError(t, err, real+`: the file changed while it was read, needed the same 100 bytes; open the model again`)
	})
}

// paths lists the files that a model was read from, its own first.
func paths(m *Model) []string {
	var list []string
	for _, s := range m.allSources() {
		list = append(list, s.path)
	}
	return list
}
