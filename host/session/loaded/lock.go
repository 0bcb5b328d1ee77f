package loaded

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// LockVariable names a lock file for programs that name none.
const LockVariable = "GRAFT_PLUGIN_LOCK"

// locked narrows a search to what a lock names: of each plugin the folder that is as it says, found or hidden,
// current or retained.
func locked(search *discovery.Search, path string) (*discovery.Search, *lockfile.File, error) {
	lock, err := lockfile.Read(path)
	if err != nil {
		return search, nil, err
	}
	out := &discovery.Search{Places: search.Places}
	var differ []string
	for i := range lock.Plugins {
		found, why := choose(search, &lock.Plugins[i])
		if why != "" {
			differ = append(differ, why)
			continue
		}
		found.ShadowedBy = ""
		out.Found = append(out.Found, found)
	}
	if len(differ) > 0 {
		return search, nil, &diagnostic.Error{Kind: refusal.ErrLock, Path: path, Found: "found " + strings.Join(differ, ", "),
			Needed: "the plugins that it names, as it says", Fix: lock.Fix()}
	}
	if len(lock.Plugins) == 0 {
		return search, nil, &diagnostic.Error{Kind: refusal.ErrLock, Path: path, Found: "found no plugin in it",
			Needed: "one to use"}
	}
	return out, lock, nil
}

// choose finds the folder that is as a lock says; without one, why says what there is.
func choose(search *discovery.Search, p *lockfile.Plugin) (found discovery.Found, why string) {
	why = fmt.Sprintf("no plugin %s", p.Name)
	first := true
	try := func(f discovery.Found) bool {
		if f.Manifest == nil || f.Manifest.Name != p.Name {
			return false
		}
		differs := differs(f, p)
		if differs == "" {
			found = f
			return true
		}
		if first {
			why, first = differs, false
		}
		return false
	}
	for _, f := range search.Found {
		if try(f) {
			return found, ""
		}
	}
	for _, place := range search.Places {
		for _, folder := range discovery.Versions(place.Folder, p.Name) {
			m, err := manifest.Read(folder)
			if err == nil && try(discovery.Found{Source: place.Source, Folder: folder, Manifest: m}) {
				return found, ""
			}
		}
	}
	return found, why
}

// differs says how a folder is not what a lock says, "" where it is. Libraries for other devices than the CPU are
// looked at when they are opened.
func differs(f discovery.Found, p *lockfile.Plugin) string {
	if f.Manifest.Version != p.Version {
		return fmt.Sprintf("%s %s in %s in place of %s", p.Name, f.Manifest.Version, f.Folder, p.Version)
	}
	known := map[string]string{manifest.FileName: f.Manifest.SHA256()}
	for _, v := range f.Manifest.Variants {
		if v.Device != "cpu" {
			known[v.File] = ""
		}
	}
	files, err := content.ReadAny(f.Folder, known)
	if err != nil {
		return err.Error()
	}
	if name, how := p.Difference(files); name != "" {
		return fmt.Sprintf("another %s %s: %s: %s", p.Name, p.Version, filepath.Join(f.Folder, name),
			strings.TrimPrefix(how, "found "))
	}
	return ""
}
