package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bom is the tool that lists what a binary is made from.
const bom = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// isLicence tells files of a module that say under which terms it is.
var isLicence = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|patents)([.-].*)?$`)

// part is what libraries of plugins are made from besides graft.
type part struct {
	name, version, licence string
	text                   string // path of the licence's text
}

// parts are those of C++ code. Their versions are those of this machine and of the compiler.
func (r *release) parts() ([]part, error) {
	python := filepath.Join(filepath.Dir(r.libraries), "zig", "bin", "python")
	zig, err := r.command("", nil, python, "-c", "import ziglang, os; print(os.path.dirname(ziglang.__file__))")
	if err != nil {
		return nil, err
	}
	compiler, err := r.command("", nil, filepath.Join(zig, "zig"), "version")
	if err != nil {
		return nil, err
	}
	debian := func(name string) (string, error) {
		return r.command("", nil, "dpkg-query", "-W", "-f", "${source:Upstream-Version}", name)
	}
	highway, err := debian("libhwy-dev")
	if err != nil {
		return nil, err
	}
	eigen, err := debian("libeigen3-dev")
	if err != nil {
		return nil, err
	}
	return []part{
		{"highway", highway, "Apache-2.0", "/usr/share/doc/libhwy-dev/copyright"},
		{"eigen", eigen, "MPL-2.0", "/usr/share/doc/libeigen3-dev/copyright"},
		{"libc++ of zig", compiler, "Apache-2.0 WITH LLVM-exception", filepath.Join(zig, "lib", "libcxx", "LICENSE.TXT")},
		{"compiler-rt of zig", compiler, "MIT", filepath.Join(zig, "LICENSE")},
	}, nil
}

// licences is the name of the file that has those of everything inside.
const licences = "THIRD-PARTY-LICENSES.txt"

// describe writes the list of contents, and the licences of everything that is inside.
func (r *release) describe() error {
	parts, err := r.parts()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("graft is under the Apache License 2.0 (LICENSE). It contains:\n")
	add := func(name, version string, paths []string) error {
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("-", 80), name, version)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(string(text), "\n"))
		}
		return nil
	}
	root, err := r.command("", nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	goVersion, err := r.command(r.sources, nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	goLicence := filepath.Join(root, "LICENSE")
	if err := add("Go's standard library", goVersion, []string{goLicence}); err != nil {
		return err
	}
	list, err := r.command(r.sources, []string{"CGO_ENABLED=0", "GOFLAGS="}, "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/graft")
	if err != nil {
		return err
	}
	lines := strings.Split(list, "\n")
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			continue
		}
		entries, err := os.ReadDir(f[2])
		if err != nil {
			return err
		}
		var paths []string
		for _, e := range entries {
			if isLicence.MatchString(e.Name()) && e.Type().IsRegular() {
				paths = append(paths, filepath.Join(f[2], e.Name()))
			}
		}
		if len(paths) == 0 {
			return fmt.Errorf("%s: found no licence", f[0])
		}
		if err := add(f[0], f[1], paths); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := add(p.name, p.version, []string{p.text}); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(r.work, licences), b.Bytes()); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.contents(p, parts); err != nil {
			return err
		}
	}
	return nil
}

// contents writes a platform's list of contents, in CycloneDX's form.
func (r *release) contents(p platform, parts []part) error {
	text, err := r.command(r.sources, []string{"GOFLAGS="}, "go", "run", bom, "bin", "-json", "-noserial", r.built(p))
	if err != nil {
		return err
	}
	var list map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	metadata, ok := list["metadata"].(map[string]any)
	if !ok {
		return errors.New("the list of contents has no metadata")
	}
	metadata["timestamp"] = r.date.Format("2006-01-02T15:04:05Z")
	if subject, ok := metadata["component"].(map[string]any); ok {
		subject["version"] = r.version
	}
	components, _ := list["components"].([]any)
	for _, x := range parts {
		components = append(components, map[string]any{"type": "library", "name": x.name, "version": x.version,
			"licenses": []any{map[string]any{"expression": x.licence}}})
	}
	list["components"] = components
	out, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(r.out, fmt.Sprintf("graft-%s-linux-%s.cdx.json", r.version, p.goarch)), append(out, '\n'))
}
