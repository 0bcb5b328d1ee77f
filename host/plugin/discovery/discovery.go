// Package discovery finds plugins' folders.
package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// PathVariable is the environment variable with a list of folders to search, separated as PATH is.
const PathVariable = "GRAFT_PLUGIN_PATH"

// Sources of plugins, in the order in which they are searched.
const (
	SourceOption     = "option"
	SourceVariable   = PathVariable
	SourceUser       = "user data folder"
	SourceExecutable = "beside the executable"
	SourceProgram    = "in the program"
)

// Place is a folder that was searched: a plugin itself, or a folder of plugins.
type Place struct {
	Source string `json:"source"`
	Folder string `json:"folder"`
	// Problem says why nothing could be looked at; empty when the folder was read.
	Problem string `json:"problem,omitempty"`
}

// Found is a folder with a plugin.yaml.
type Found struct {
	Source   string             `json:"source"`
	Folder   string             `json:"folder"`
	Manifest *manifest.Manifest `json:"manifest,omitempty"` // nil when Err is not
	Err      error              `json:"-"`
	// ShadowedBy is the folder of the plugin of the same name that was found first and is used.
	ShadowedBy string `json:"shadowed_by,omitempty"`
}

// Search is what a discovery found and where it looked.
type Search struct {
	Places []Place `json:"places"`
	Found  []Found `json:"found"`
}

// Options say where to look; the zero value looks in the ordinary places. The working directory is
// never one of them.
type Options struct {
	// Folders come first: each a plugin or a folder of plugins.
	Folders []string
	// Only leaves the ordinary places out.
	Only bool
}

// Find searches the option's folders, GRAFT_PLUGIN_PATH, the user's data folder, plugins/ beside
// the executable, and the program itself. The first plugin of a name is used; later ones are listed as shadowed.
func Find(opts Options) *Search {
	s := &Search{}
	for _, folder := range opts.Folders {
		absolute, err := filepath.Abs(folder)
		if folder == "" || err != nil {
			s.Places = append(s.Places, Place{SourceOption, folder, "not a folder name"})
			continue
		}
		s.look(SourceOption, absolute)
	}
	if opts.Only {
		return s
	}
	for _, folder := range filepath.SplitList(os.Getenv(PathVariable)) {
		if folder == "" {
			continue // would mean the working directory
		}
		if !filepath.IsAbs(folder) {
			s.Places = append(s.Places, Place{SourceVariable, folder, "relative; write an absolute path"})
			continue
		}
		s.look(SourceVariable, filepath.Clean(folder))
	}
	if data, err := storage.DataFolder(); err != nil {
		s.Places = append(s.Places, Place{SourceUser, "", err.Error()})
	} else {
		s.look(SourceUser, filepath.Join(data, "plugins"))
	}
	if beside, err := besideExecutable(); err != nil {
		s.Places = append(s.Places, Place{SourceExecutable, "", err.Error()})
	} else {
		s.look(SourceExecutable, beside)
	}
	s.carried()
	return s
}

// carried adds what the program carries in itself, but what was found in another place already: that was put there.
func (s *Search) carried() {
	plugins, err := embedded.Plugins()
	if err != nil {
		s.Places = append(s.Places, Place{SourceProgram, "", err.Error()})
	}
	for _, p := range plugins {
		if s.inUse(p.Name) != nil {
			s.add(SourceProgram, p.Inside())
			continue
		}
		folder := p.Folder()
		s.Places = append(s.Places, Place{Source: SourceProgram, Folder: folder})
		s.add(SourceProgram, folder)
	}
}

// inUse is the plugin of a name, nil where there is none.
func (s *Search) inUse(name string) *Found {
	for i, f := range s.Found {
		if f.Manifest != nil && f.ShadowedBy == "" && f.Manifest.Name == name {
			return &s.Found[i]
		}
	}
	return nil
}

// besideExecutable is plugins/ next to this program, links resolved.
func besideExecutable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	return filepath.Join(filepath.Dir(path), "plugins"), nil
}

// look reads one place: the folder itself when it holds a manifest, else each folder in it that does.
func (s *Search) look(source, folder string) {
	if slices.ContainsFunc(s.Places, func(p Place) bool { return p.Folder == folder }) {
		return
	}
	place := Place{Source: source, Folder: folder}
	defer func() { s.Places = append(s.Places, place) }()
	if manifest.Exists(folder) {
		s.add(source, folder)
		return
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		var pathError *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			place.Problem = "no such folder"
		case errors.As(err, &pathError):
			place.Problem = pathError.Err.Error()
		default:
			place.Problem = err.Error()
		}
		return
	}
	for _, e := range entries {
		// Hidden folders are a store's own: staging, replaced versions.
		if inner := Current(filepath.Join(folder, e.Name())); !strings.HasPrefix(e.Name(), ".") && manifest.Exists(inner) {
			s.add(source, inner)
		}
	}
}

func (s *Search) add(source, folder string) {
	f := Found{Source: source, Folder: folder}
	f.Manifest, f.Err = manifest.Read(folder)
	if f.Err == nil {
		if other := s.inUse(f.Manifest.Name); other != nil {
			f.ShadowedBy = other.Folder
		}
	}
	s.Found = append(s.Found, f)
}

// Plugins are the found plugins that are in use: readable and not shadowed.
func (s *Search) Plugins() []Found {
	var out []Found
	for _, f := range s.Found {
		if f.Err == nil && f.ShadowedBy == "" {
			out = append(out, f)
		}
	}
	return out
}

// ByName returns the plugin in use of that name. Without one, the error is of kind ErrNotFound and says
// where it looked.
func (s *Search) ByName(name string) (*Found, error) {
	for _, f := range s.Plugins() {
		if f.Manifest.Name == name {
			return &f, nil
		}
	}
	return nil, s.notFound(fmt.Sprintf("found no plugin %q", name))
}

// Err is nil when a plugin was found; else it says where the search looked and what to install.
func (s *Search) Err() error {
	if len(s.Plugins()) > 0 {
		return nil
	}
	return s.notFound("found no plugin")
}

func (s *Search) notFound(found string) error {
	var b strings.Builder
	b.WriteString(found + "; looked in:")
	for _, p := range s.Places {
		fmt.Fprintf(&b, "\n  %s (%s)", p.Folder, p.Source)
		if p.Problem != "" {
			b.WriteString(": " + p.Problem)
		}
	}
	var broken []error
	for _, f := range s.Found {
		if f.Err != nil {
			fmt.Fprintf(&b, "\n  not usable: %s", strings.ReplaceAll(f.Err.Error(), "\n", "\n    "))
			broken = append(broken, f.Err)
		}
	}
	b.WriteString("\ninstall one with: graft plugin install DIR, or set " + PathVariable + " to a folder of plugins")
	return &diagnostic.Error{Kind: refusal.ErrNotFound, Found: b.String(), Cause: errors.Join(broken...)}
}
