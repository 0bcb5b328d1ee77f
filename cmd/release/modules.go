package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/opgraft/graft"

// modules writes graft and its plugins as Go modules, in the form of a module proxy's folder: GOPROXY=file://.../go.
func (r *release) modules() error {
	own := filepath.Join(r.work, "standard")
	for _, added := range []string{standard, "cmd/graft/standard.go"} { // graft's own module is as it was committed
		if err := os.RemoveAll(filepath.Join(r.sources, filepath.FromSlash(added))); err != nil {
			return err
		}
	}
	if err := r.module(modulePath, r.sources); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.sources, "go.mod"))
	if err != nil {
		return err
	}
	version := ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "go ") {
			version = strings.TrimSpace(line)
		}
	}
	mod := fmt.Sprintf("module %s/%s\n\n%s\n\nrequire %s v%s\n", modulePath, standard, version, modulePath, r.version)
	if err := write(filepath.Join(own, "go.mod"), []byte(mod)); err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(r.sources, "LICENSE"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(own, "LICENSE"), licence); err != nil {
		return err
	}
	return r.module(modulePath+"/"+standard, own)
}

// module writes a folder as a version of a module.
func (r *release) module(path, folder string) error {
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	version := "v" + r.version
	to := filepath.Join(r.out, "go", filepath.FromSlash(escaped), "@v")
	var b bytes.Buffer
	if err := zip.CreateFromDir(&b, module.Version{Path: path, Version: version}, folder); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, r.date})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info,
		version + ".mod": mod, version + ".zip": b.Bytes()} {
		if err := write(filepath.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}
