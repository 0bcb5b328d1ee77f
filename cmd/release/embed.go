package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// standard is the package that carries graft's own plugins, below the sources; it is there in releases only.
const standard = "plugins/standard"

// Its sources. What is embedded depends on the platform.
const (
	standardDoc = `// Package standard carries graft's own plugins for the CPU inside of the program that imports it, so that nothing has to be installed:
//
//	import _ "github.com/opgraft/graft/plugins/standard"
//
// graft.Enable finds them after every other place. Their hashes are part of the program. They are written into the user's cache once;
// where no folder can be written they are loaded from memory.
package standard
`
	standardSource = `package standard

import (
	"embed"
	"io/fs"

	"github.com/opgraft/graft/host/plugin/embedded"
)

//go:embed %[1]s
var files embed.FS

func init() {
	set, err := fs.Sub(files, %[1]q)
	if err != nil {
		panic(err) // the name is a constant
	}
	embedded.Register(set)
}
`
	useStandard = `package main

import _ "github.com/opgraft/graft/plugins/standard" // a released graft brings its plugins
`
)

// embed writes the package of plugins into the sources, and has the command line import it.
func (r *release) embed() error {
	folder := filepath.Join(r.work, "standard")
	for _, p := range r.platforms {
		set := "linux_" + p.goarch
		files, err := r.readPlugins(p)
		if err != nil {
			return err
		}
		if err := pack(filepath.Join(folder, set), files); err != nil {
			return err
		}
		if err := write(filepath.Join(folder, "standard_"+set+".go"), fmt.Appendf(nil, standardSource, set)); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(folder, "standard.go"), []byte(standardDoc)); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(r.sources, filepath.FromSlash(standard)), os.DirFS(folder)); err != nil {
		return err
	}
	return write(filepath.Join(r.sources, "cmd/graft/standard.go"), []byte(useStandard))
}

// pack writes files of plugins as package embedded reads them.
func pack(folder string, files map[string][]byte) error {
	var list []*embedded.Plugin
	for _, name := range slices.Sorted(maps.Keys(files)) {
		plugin, file := path.Split(filepath.ToSlash(name))
		plugin = path.Clean(plugin)
		if len(list) == 0 || list[len(list)-1].Name != plugin {
			m, err := manifest.Parse(name, files[path.Join(plugin, manifest.FileName)])
			if err != nil {
				return err
			}
			list = append(list, &embedded.Plugin{Name: plugin, Version: m.Version, Files: content.Files{},
				Sizes: map[string]int64{}})
		}
		p := list[len(list)-1]
		sum := sha256.Sum256(files[name])
		p.Files[file] = content.File{SHA256: hex.EncodeToString(sum[:])}
		p.Sizes[file] = int64(len(files[name]))
		packed, err := compressed(files[name])
		if err != nil {
			return err
		}
		if err := write(filepath.Join(folder, name+embedded.Packed), packed); err != nil {
			return err
		}
	}
	index, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return write(filepath.Join(folder, embedded.IndexName), append(index, '\n'))
}

// compressed is gzip without a name or a time.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// write writes a file and the folders above it.
func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return storage.Write(path, data, storage.Shared)
}
