package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const hostArch = runtime.GOARCH

const (
	homepage = "https://github.com/opgraft/graft"
	summary  = "Swap faster operators into ONNX models"
	author   = "The graft authors"
	distName = "opgraft" // on PyPI and npm
)

// debian writes a package for each processor, by Debian's own tool.
func (r *release) debian() error {
	for _, p := range r.platforms {
		list, err := r.installed(p, "usr/", "usr/share/doc/graft/")
		if err != nil {
			return err
		}
		size := 0
		for _, e := range list {
			size += len(e.data)
		}
		list["usr/share/doc/graft/copyright"] = list["usr/share/doc/graft/LICENSE"]
		delete(list, "usr/share/doc/graft/LICENSE")
		list["DEBIAN/control"] = entry{data: fmt.Appendf(nil, `Package: graft
Version: %s
Section: utils
Priority: optional
Architecture: %s
Depends: libc6 (>= %s)
Installed-Size: %d
Maintainer: %s <noreply@opgraft.invalid>
Homepage: %s
Description: %s
 graft finds operator plugins, recognises in an ONNX model what they can
 replace, and swaps them in. The model file stays, the answers stay; time and
 memory shrink. Its own plugins for the CPU are inside.
`, r.version, p.goarch, p.maximum, (size+1023)/1024, author, homepage, summary)}
		folder := filepath.Join(r.work, "deb-"+p.goarch)
		for _, name := range slices.Sorted(maps.Keys(list)) {
			path := filepath.Join(folder, name)
			if err := write(path, list[name].data); err != nil {
				return err
			}
			if err := os.Chmod(path, list[name].mode()); err != nil {
				return err
			}
		}
		err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error { // whatever the umask says
			if err == nil && d.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
		if err != nil {
			return err
		}
		to := filepath.Join(r.out, fmt.Sprintf("graft_%s_%s.deb", r.version, p.goarch))
		if _, err := r.command("", []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())}, "dpkg-deb",
			"--root-owner-group", "-Zgzip", "-z9", "--threads-max=1", "--build", folder, to); err != nil {
			return err
		}
	}
	return nil
}

// wheels writes Python's package for each processor. It runs with every Python 3.
func (r *release) wheels() error {
	sources := filepath.Join(r.sources, "bindings/python")
	if _, err := os.Stat(filepath.Join(sources, "graft")); err != nil {
		return err
	}
	for _, p := range r.platforms {
		list := files{}
		err := filepath.WalkDir(filepath.Join(sources, "graft"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !(strings.HasSuffix(path, ".py") || d.Name() == "py.typed") {
				return err
			}
			name, err := filepath.Rel(sources, path)
			if err != nil {
				return err
			}
			return list.add(filepath.ToSlash(name), path, false)
		})
		if err != nil {
			return err
		}
		if err := list.add("graft/bin/graft", r.built(p), true); err != nil {
			return err
		}
		if own := r.library(p); own != "" {
			if err := list.add("graft/lib/libgraft.so", own, false); err != nil {
				return err
			}
		}
		info := fmt.Sprintf("%s-%s.dist-info/", distName, r.version)
		readme, err := os.ReadFile(filepath.Join(sources, "README.md"))
		if err != nil {
			return err
		}
		list[info+"METADATA"] = entry{data: fmt.Appendf(nil, `Metadata-Version: 2.4
Name: %s
Version: %s
Summary: %s
Author: %s
License-Expression: Apache-2.0
License-File: LICENSE
License-File: %s
Project-URL: Homepage, %s
Requires-Python: >=3.10
Requires-Dist: onnxruntime>=1.22
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

%s`, distName, r.version, summary, author, licences, homepage, readme)}
		tag := "manylinux_" + strings.ReplaceAll(p.maximum, ".", "_") + "_" + p.machine
		list[info+"WHEEL"] = entry{data: fmt.Appendf(nil,
			"Wheel-Version: 1.0\nGenerator: graft-release\nRoot-Is-Purelib: false\nTag: py3-none-%s\n", tag)}
		list[info+"entry_points.txt"] = entry{data: []byte("[console_scripts]\ngraft = graft.__main__:main\n")}
		if err := list.add(info+"licenses/LICENSE", filepath.Join(r.sources, "LICENSE"), false); err != nil {
			return err
		}
		if err := list.add(info+"licenses/"+licences, filepath.Join(r.work, licences), false); err != nil {
			return err
		}
		var record strings.Builder
		for _, name := range slices.Sorted(maps.Keys(list)) {
			sum := sha256.Sum256(list[name].data)
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(list[name].data))
		}
		fmt.Fprintf(&record, "%sRECORD,,\n", info)
		list[info+"RECORD"] = entry{data: []byte(record.String())}
		last := slices.DeleteFunc(slices.Sorted(maps.Keys(list)),
			func(name string) bool { return !strings.HasPrefix(name, info) })
		if err := zipped(filepath.Join(r.out, fmt.Sprintf("%s-%s-py3-none-%s.whl", distName, r.version, tag)), list, last,
			r.date); err != nil {
			return err
		}
	}
	return nil
}

// npm writes Node's package, with all processors inside.
func (r *release) npm() error {
	list := files{}
	for name, from := range map[string]string{"LICENSE": filepath.Join(r.sources, "LICENSE"),
		licences: filepath.Join(r.work, licences), "README.md": filepath.Join(r.sources, "cmd/release/npm/README.md"),
		"index.js":   filepath.Join(r.sources, "cmd/release/npm/index.js"),
		"index.d.ts": filepath.Join(r.sources, "cmd/release/npm/index.d.ts")} {
		if err := list.add("package/"+name, from, false); err != nil {
			return err
		}
	}
	if err := list.add("package/cli.js", filepath.Join(r.sources, "cmd/release/npm/cli.js"), true); err != nil {
		return err
	}
	var processors []string
	for _, p := range r.platforms {
		processors = append(processors, p.node)
		folder := "package/linux-" + p.node + "/"
		if err := list.add(folder+"bin/graft", r.built(p), true); err != nil {
			return err
		}
		if own := r.library(p); own != "" {
			if err := list.add(folder+"lib/graft/libgraft.so", own, false); err != nil {
				return err
			}
		}
	}
	description, err := json.MarshalIndent(map[string]any{
		"name": distName, "version": r.version, "description": summary, "license": "Apache-2.0", "homepage": homepage,
		"repository": map[string]any{"type": "git", "url": "git+" + homepage + ".git"}, "author": author,
		"os": []string{"linux"}, "cpu": processors, "libc": []string{"glibc"}, "engines": map[string]any{"node": ">=18"},
		"main": "index.js", "types": "index.d.ts", "bin": map[string]any{"graft": "cli.js"},
	}, "", "  ")
	if err != nil {
		return err
	}
	list["package/package.json"] = entry{data: append(description, '\n')}
	return tarball(filepath.Join(r.out, fmt.Sprintf("%s-%s.tgz", distName, r.version)), list, r.date)
}
