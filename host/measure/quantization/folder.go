package quantization

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// ErrOutput is the kind of errors about what is to be written.
var ErrOutput = errors.New("bad output")

// maxFiles is how many files a model folder has at most.
const maxFiles = 10_000

// foreign are endings of files beside a model's graphs in which other frameworks store the same weights.
var foreign = []string{".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ot", ".gguf", ".ckpt"}

// Folder writes a model folder to another, whole or not at all: every .onnx in it quantised, those of which nothing
// can be as they are, and all other files, but for the same weights as other frameworks store them. There is nothing
// at `to` yet, or an empty folder.
func Folder(ctx context.Context, folder, to string, o Options) (*Report, error) {
	to = filepath.Clean(to)
	if err := vacant(to); err != nil {
		return nil, err
	}
	graphs, others, err := filesIn(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(graphs) == 0 {
		return nil, &diagnostic.Error{Path: folder, Found: "found no .onnx in it",
			Needed: "a folder as `optimum-cli export onnx` writes it", Fix: "export the model, or name a single .onnx"}
	}
	var list []*export
	defer func() {
		for _, x := range list {
			x.close()
		}
	}()
	for _, name := range graphs {
		x, err := read(filepath.Join(folder, name), name, o)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	r := &Report{Requested: written(o.Weights).String(), Copied: []string{}, Left: []string{}}
	copied, err := r.sort(folder, others, list)
	if err != nil {
		return nil, err
	}
	beside, err := beginBeside(to)
	if err != nil {
		return nil, cannotWrite(to, err)
	}
	defer beside.Remove()
	stage := filepath.Join(beside.Path, "model")
	if err := os.Mkdir(stage, 0o755); err != nil {
		return nil, cannotWrite(to, err)
	}
	for _, name := range append(slices.Clone(graphs), copied...) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(stage, name)), 0o755); err != nil {
			return nil, cannotWrite(to, err)
		}
	}
	for _, name := range copied {
		if err := copyFile(ctx, filepath.Join(folder, name), filepath.Join(stage, name)); err != nil {
			return nil, err
		}
	}
	if err := r.write(ctx, list, func(x *export) string { return filepath.Join(stage, x.file) }, o); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := storage.Place(stage, to); err != nil {
		return nil, cannotWrite(to, err)
	}
	return r, nil
}

// beginBeside makes a temporary folder beside a path, on the same file system.
func beginBeside(path string) (*storage.Folder, error) {
	above := filepath.Dir(path)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return nil, err
	}
	return storage.Temporary(above)
}

func cannotWrite(to string, err error) error {
	var d *diagnostic.Error
	if errors.As(err, &d) {
		return err
	}
	return &diagnostic.Error{Kind: ErrOutput, Path: to, Found: "cannot write the model there: " + diagnostic.Cause(err),
		Cause: err}
}

// vacant is an error where something is at a path that a folder is to be put at.
func vacant(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &diagnostic.Error{Kind: ErrOutput, Path: path,
			Found: "cannot write a model folder there: " + diagnostic.Cause(err), Needed: "a folder that is new or empty",
			Fix: "name another one", Cause: err}
	case len(entries) > 0:
		return &diagnostic.Error{Kind: ErrOutput, Path: path,
			Found:  fmt.Sprintf("found a folder that holds %s", diagnostic.Quote(entries[0].Name())),
			Needed: "one that is new or empty", Fix: "name another one, or remove it"}
	}
	return nil
}

// filesIn are the files of a folder and of those below it, by their paths in it, links followed to files. Hidden ones
// are left.
func filesIn(ctx context.Context, folder string) (graphs, others []string, err error) {
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == "." {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if info.IsDir() {
				return nil
			}
		}
		switch {
		case e.IsDir():
			return nil
		case strings.EqualFold(filepath.Ext(name), ".onnx"):
			graphs = append(graphs, name)
		default:
			others = append(others, name)
		}
		if len(graphs)+len(others) > maxFiles {
			return &diagnostic.Error{Path: folder, Found: fmt.Sprintf("found more than %d files", maxFiles),
				Needed: "the folder of one model", Fix: "name that"}
		}
		return nil
	})
	var d *diagnostic.Error
	if err != nil && !errors.As(err, &d) && ctx.Err() == nil {
		err = &diagnostic.Error{Path: folder, Found: "cannot read the folder: " + diagnostic.Cause(err), Cause: err}
	}
	return graphs, others, err
}

// sort says which of the other files of a folder are copied: not the data of its graphs, and not other frameworks'
// files of the weights.
func (r *Report) sort(folder string, others []string, list []*export) (copied []string, err error) {
	data := map[string]bool{}
	for _, x := range list {
		for _, path := range x.data {
			data[path] = true
		}
	}
	for _, name := range others {
		path, err := filepath.Abs(filepath.Join(folder, name))
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return nil, &diagnostic.Error{Path: filepath.Join(folder, name),
				Found: "cannot find the file: " + diagnostic.Cause(err), Cause: err}
		}
		switch {
		case data[path]:
		case filepath.Dir(name) == "." && slices.Contains(foreign, strings.ToLower(filepath.Ext(name))):
			r.Left = append(r.Left, name)
		default:
			copied = append(copied, name)
		}
	}
	r.Copied = append(r.Copied, copied...)
	return copied, nil
}

// copyFile copies a regular file until the context ends.
func copyFile(ctx context.Context, from, to string) error {
	in, err := storage.OpenRegular(from)
	if err != nil {
		return &diagnostic.Error{Path: from, Found: "cannot copy the file: " + diagnostic.Cause(err), Cause: err}
	}
	defer in.Close()
	buffer := make([]byte, 1<<20)
	err = storage.WriteFrom(to, storage.Shared, func(w io.Writer) error {
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := in.Read(buffer)
			if _, wrong := w.Write(buffer[:n]); wrong != nil {
				return wrong
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil && ctx.Err() == nil {
		err = &diagnostic.Error{Path: from, Found: "cannot copy the file: " + diagnostic.Cause(err), Cause: err}
	}
	return err
}
