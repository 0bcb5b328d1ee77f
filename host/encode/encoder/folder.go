package encoder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// inside is the path of a part of a folder that a configuration names. It does not lead out of the folder.
func inside(folder, file, name string) (string, error) {
	if name == "" {
		return folder, nil
	}
	if !filepath.IsLocal(name) {
		return "", &diagnostic.Error{Path: file, Found: fmt.Sprintf("the path %q", diagnostic.Clip(name)),
			Needed: "a folder below " + folder}
	}
	return filepath.Join(folder, name), nil
}

// graphOf finds the graph of a folder whose Transformer may have files of its own.
func graphOf(folder, transformer, asked string) (string, error) {
	if asked == "" && transformer != folder {
		if file, err := graphFile(transformer, ""); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return graphFile(folder, asked)
}

// graphFile finds the graph of a folder: the one that is asked for, onnx/model.onnx, model.onnx, or the only one
// there is.
func graphFile(folder, asked string) (string, error) {
	if info, err := os.Stat(folder); err != nil {
		return "", &diagnostic.Error{Path: folder, Found: "cannot be read: " + diagnostic.Cause(err),
			Needed: "the folder of a model", Cause: err}
	} else if !info.IsDir() {
		return "", &diagnostic.Error{Path: folder, Found: "a file", Needed: "the folder of a model, with its tokenizer"}
	}
	if asked != "" {
		path, err := inside(folder, folder, asked)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return "", &diagnostic.Error{Path: filepath.Join(folder, asked), Found: diagnostic.Cause(err),
				Needed: "the model's graph", Cause: err}
		}
		return path, nil
	}
	var all []string
	for _, below := range []string{"onnx", "."} {
		path := filepath.Join(folder, below, "model.onnx")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		list, err := os.ReadDir(filepath.Join(folder, below))
		if err != nil {
			continue
		}
		for _, f := range list {
			if strings.HasSuffix(f.Name(), ".onnx") && !f.IsDir() {
				all = append(all, filepath.Join(below, f.Name()))
			}
		}
	}
	switch len(all) {
	case 1:
		return filepath.Join(folder, all[0]), nil
	case 0:
		return "", &diagnostic.Error{Kind: fs.ErrNotExist, Path: folder, Found: "no .onnx file",
			Needed: "model.onnx or onnx/model.onnx",
			Fix:    "export the model: optimum-cli export onnx --model NAME FOLDER"}
	}
	return "", &diagnostic.Error{Path: folder, Found: "several graphs: " + diagnostic.Clip(strings.Join(all, ", ")),
		Needed: "one, or model.onnx",
		Fix:    "name it (ModelFile, --model-file)"}
}
