package lockfile

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Bounds of a lock, far above any real one.
const (
	maxBytes   = 4 << 20
	maxPlugins = 1000
	maxText    = 2048 // of a source
)

var sum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// plain is an error of the YAML reader in one line.
func plain(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	return diagnostic.Printable(strings.Join(strings.Fields(text), " "))
}

// check holds what is said against what may be.
func (f *File) check() error {
	if f.SchemaVersion != SchemaVersion {
		return f.refuse(fmt.Sprintf("found schema_version %d", f.SchemaVersion), fmt.Sprint(SchemaVersion), nil)
	}
	if len(f.Plugins) > maxPlugins {
		return f.refuse(fmt.Sprintf("found %d plugins", len(f.Plugins)), fmt.Sprintf("at most %d", maxPlugins), nil)
	}
	seen := map[string]bool{}
	for i := range f.Plugins {
		p := &f.Plugins[i]
		if found, needed := p.check(); found != "" {
			return f.refuse(fmt.Sprintf("found %s in plugin %d of the list", found, i+1), needed, nil)
		}
		if seen[p.Name] {
			return f.refuse("found the plugin "+p.Name+" twice", "each once", nil)
		}
		seen[p.Name] = true
	}
	return nil
}

// check says what is wrong with an entry and what would have to be there; "" for nothing.
func (p *Plugin) check() (found, needed string) {
	quoted := func(text string) string { return diagnostic.Printable(diagnostic.Quote(diagnostic.Clip(text))) }
	_, abi := manifest.ParseABIVersion(p.ABI)
	switch {
	case !manifest.IsName(p.Name):
		return "the name " + quoted(p.Name), "that of a plugin: letters a to z, digits and -"
	case !manifest.IsVersion(p.Version):
		return "the version " + quoted(p.Version), "a semantic version such as 1.2.3"
	case abi != nil:
		return "the abi " + quoted(p.ABI), `major.minor such as "1.0"`
	case !isText(p.Source):
		return "the source " + quoted(p.Source), "a path or an address in one line"
	case !isText(p.Key):
		return "the key " + quoted(p.Key), "a public key in one line"
	case p.Files[manifest.FileName] == "":
		return "no hash of " + manifest.FileName, "one under files"
	}
	for _, v := range p.Variants {
		if _, twice := p.Files[v.File]; twice || !isPlain(v.File) {
			return "the file " + quoted(v.File) + " of a variant", "a plain name, once"
		}
		if !isText(v.Device + v.OS + v.Arch) {
			return "a variant for " + quoted(v.Device+" "+v.OS+" "+v.Arch), "device, os and arch"
		}
		if !sum.MatchString(v.SHA256) {
			return "the sha256 " + quoted(v.SHA256), "64 hexadecimal digits"
		}
	}
	files := map[string]bool{}
	for _, v := range p.Variants {
		if files[v.File] {
			return "the file " + quoted(v.File) + " of two variants", "each once"
		}
		files[v.File] = true
	}
	for name, sha := range p.Files {
		switch {
		case !fs.ValidPath(name) || name == "." || !isText(name):
			return "the file " + quoted(name), "a path inside the plugin's folder, with slashes"
		case !sum.MatchString(sha):
			return "the hash " + quoted(sha) + " of " + quoted(name), "SHA-256, 64 hexadecimal digits"
		}
	}
	return "", ""
}

// isPlain reports the name of a file without folders.
func isPlain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\") && isText(name)
}

// isText reports one line of text that a terminal only shows.
func isText(text string) bool {
	return len(text) <= maxText &&
		!strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar })
}
