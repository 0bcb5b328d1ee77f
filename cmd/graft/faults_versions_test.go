//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/tests/faults"
)

// toys are plugins' folders of two versions of one plugin, by version: what they hold.
var toys = sync.OnceValue(func() map[string]map[string]string {
	made, err := os.MkdirTemp("", "graft-toys-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(made)
	t := &failing{}
	sources := map[string]map[string]string{}
	fixture, err := filepath.Abs("../../host/plugin/plugintest/testdata/plugin.c")
	if err != nil {
		panic(err)
	}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		library, folder := filepath.Join(made, version+".so"), filepath.Join(made, version)
		plugintest.Compile(t, library, "-DVERSION=\""+version+"\"", "-DARCH=\""+runtime.GOARCH+"\"", "-I../../abi", fixture)
		plugintest.Write(t, folder,
			strings.Replace(plugintest.Manifest, "version: 0.1.0", "version: "+version, 1)+plugintest.Cases, library)
		sources[version] = map[string]string{}
		for _, name := range []string{"plugin.yaml", "libtoy.so"} {
			sources[version][name] = string(plugintest.ReadFile(t, filepath.Join(folder, name)))
		}
	}
	return sources
})

// failing is a test whose failure is a panic: what it makes is for many tests.
type failing struct{ testing.TB }

func (*failing) Helper()                      {}
func (*failing) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*failing) Fatalf(text string, a ...any) { panic(fmt.Sprintf(text, a...)) }
func (p *place) layToys() {
	for version, content := range toys() {
		lay(p.t, p.at("in", version), content)
	}
}
func (p *place) store() *store.Store { return store.At(p.at("data", "graft")) }
func (p *place) must(args ...string) {
	p.t.Helper()
	if run := p.command(faults.Fault{}, args...); run.Code != 0 {
		p.t.Fatalf("%v: %s", args, run.Stderr)
	}
}

// versions says which version of the toy is current and which are retained. Each is whole, recorded, and one that a
// program loads.
func (p *place) versions() (current string, retained []string, err error) {
	s := p.store()
	list, err := s.List()
	if err != nil || len(list) != 1 {
		return "", nil, fmt.Errorf("the store holds %+v, %v", list, err)
	}
	for _, in := range append(slices.Clone(list), list[0].Retained...) {
		found := files(p.t, in.Folder)
		delete(found, ".graft-record.json")
		if in.Problem != "" || fmt.Sprint(found) != fmt.Sprint(toys()[in.Version]) {
			return "", nil, fmt.Errorf("version %q is not whole: %s; files %d", in.Version, in.Problem, len(found))
		}
		if err := plugin.Check(in.Folder, plugin.OpenOptions{Trust: s.Trust()}); err != nil {
			return "", nil, err
		}
	}
	for _, in := range list[0].Retained {
		retained = append(retained, in.Version)
	}
	search := discovery.Find(discovery.Options{Folders: []string{p.at("data", "graft", "plugins")}, Only: true})
	if len(search.Found) != 1 || search.Found[0].Err != nil || search.Found[0].Folder != list[0].Folder {
		return "", nil, fmt.Errorf("a program finds %+v", search.Found)
	}
	return list[0].Version, retained, nil
}

// is checks which versions there are.
func (p *place) is(current string, retained ...string) error {
	now, beside, err := p.versions()
	if err == nil && (now != current || fmt.Sprint(beside) != fmt.Sprint(retained)) {
		err = fmt.Errorf("%s is current and %v retained, want %s and %v", now, beside, current, retained)
	}
	return err
}

// tidy checks that nothing is left of runs that ended: the store holds its own files, and so many versions of the toy.
func tidy(p *place, versions int) error {
	for folder, own := range map[string][]string{
		"":                      {"plugins", "verified.json", "verified.json.lock"},
		"plugins":               {"toy", ".lock", ".versions"},
		"plugins/.versions":     {"toy"},
		"plugins/.versions/toy": nil,
	} {
		entries, err := os.ReadDir(p.at("data", "graft", folder))
		if errors.Is(err, fs.ErrNotExist) && versions == 0 {
			continue
		}
		if err != nil {
			return err
		}
		there := 0
		for _, e := range entries {
			switch {
			case own == nil && e.IsDir():
				there++
			case own == nil && e.Name() == "retained.json", slices.Contains(own, e.Name()):
			default:
				return fmt.Errorf("%s is left in %s", e.Name(), folder)
			}
		}
		if own == nil && there != versions {
			return fmt.Errorf("%d versions lie in the store, want %d", there, versions)
		}
	}
	return verifiedAlone(p, versions)
}

// verifiedAlone checks that what is recorded as verified is what is there.
func verifiedAlone(p *place, versions int) error {
	known, err := p.store().Trust().Read()
	if err != nil {
		return err
	}
	if len(known.Plugins) != versions {
		return fmt.Errorf("%d plugins are recorded, want %d", len(known.Plugins), versions)
	}
	for _, v := range known.Plugins {
		for _, folder := range v.Folders {
			if !plugintest.Exists(filepath.Join(folder, "plugin.yaml")) {
				return fmt.Errorf("recorded is %s, which is not there", folder)
			}
		}
	}
	return nil
}

// oldOrNew is a check that one of two states is there, and the second where the command went well.
func oldOrNew(before, after func(*place) error) func(*place, *faults.Run) error {
	return func(p *place, run *faults.Run) error {
		late := after(p)
		if late == nil || run.Code == 0 {
			return late
		}
		if early := before(p); early != nil {
			return errors.Join(early, late)
		}
		return nil
	}
}

// upgrading replaces the current version by a newer one.
func upgrading(t *testing.T) *writing {
	args := []string{"plugin", "upgrade", "toy", "in/0.2.0", "-q"}
	after := func(p *place) error { return p.is("0.2.0", "0.1.0") }
	return &writing{args: args, again: args,
		prepare: func(p *place) { p.layToys(); p.must("plugin", "install", "in/0.1.0", "-q") },
		whole:   oldOrNew(func(p *place) error { return p.is("0.1.0") }, after),
		after:   func(p *place, _ *faults.Run) error { return errors.Join(after(p), tidy(p, 2)) }}
}

// older makes a store as grafts before this one did: a folder where there is a link now, and no versions.
func older(p *place) {
	p.layToys()
	p.must("plugin", "install", "in/0.1.0", "-q")
	plugins := p.at("data", "graft", "plugins")
	link := filepath.Join(plugins, "toy")
	folder, err := filepath.EvalSymlinks(link)
	if err == nil {
		err = errors.Join(os.Remove(link), os.Rename(folder, link), os.RemoveAll(filepath.Join(plugins, ".versions")))
	}
	record := p.at("data", "graft", "verified.json")
	data, failed := os.ReadFile(record)
	if err = errors.Join(err, failed); err != nil {
		p.t.Fatal(err)
	}
	plugintest.WriteFile(p.t, record, []byte(strings.ReplaceAll(string(data), folder, link)))
	if err := p.is("0.1.0"); err != nil {
		p.t.Fatal(err)
	}
}

func upgradingOlder(t *testing.T) *writing {
	w := upgrading(t)
	w.prepare = older
	return w
}

// rollingBack returns to the older of two versions.
func rollingBack(t *testing.T) *writing {
	after := func(p *place) error { return p.is("0.1.0", "0.2.0") }
	return &writing{args: []string{"plugin", "rollback", "toy", "-q"},
		again: []string{"plugin", "rollback", "toy", "--to", "0.1.0", "-q"},
		prepare: func(p *place) {
			p.layToys()
			p.must("plugin", "install", "in/0.1.0", "-q")
			p.must("plugin", "upgrade", "toy", "in/0.2.0", "-q")
		},
		whole: oldOrNew(func(p *place) error { return p.is("0.2.0", "0.1.0") }, after),
		after: func(p *place, _ *faults.Run) error { return errors.Join(after(p), tidy(p, 2)) }}
}

// removing takes a plugin of two versions away.
func removing(t *testing.T) *writing {
	gone := func(p *place) error {
		list, err := p.store().List()
		search := discovery.Find(discovery.Options{Folders: []string{p.at("data", "graft", "plugins")}, Only: true})
		if err != nil || len(list) != 0 || len(search.Found) != 0 {
			return fmt.Errorf("the store holds %+v, and a program finds %+v, %v", list, search.Found, err)
		}
		return nil
	}
	return &writing{args: []string{"plugin", "remove", "toy", "-q"},
		again: []string{"plugin", "install", "in/0.1.0", "-q", "--replace", "toy"},
		prepare: func(p *place) {
			p.layToys()
			p.must("plugin", "install", "in/0.1.0", "-q")
			p.must("plugin", "upgrade", "toy", "in/0.2.0", "-q")
		},
		whole: oldOrNew(func(p *place) error { return p.is("0.2.0", "0.1.0") }, gone),
		after: func(p *place, run *faults.Run) error {
			if gone(p) == nil { // the run without a fault
				return tidy(p, 0)
			}
			now, _, err := p.versions()
			if err == nil && now != "0.1.0" {
				err = fmt.Errorf("%s is current after an installation of 0.1.0", now)
			}
			return err
		}}
}

// installingLocked installs from a mirror what a lock names, beside an older version.
func installingLocked(t *testing.T) *writing {
	args := []string{"plugin", "install", "--locked", "--lock", "in/graft.lock", "--mirror", "in/bundle", "-q"}
	after := func(p *place) error { return p.is("0.2.0", "0.1.0") }
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			p.layToys()
			p.must("plugin", "install", "in/0.2.0", "-q")
			p.must("plugin", "lock", "toy", "--out", "in/graft.lock", "-q")
			p.must("plugin", "bundle", "in/bundle", "--lock", "in/graft.lock", "-q")
			p.must("plugin", "remove", "toy", "-q")
			p.must("plugin", "install", "in/0.1.0", "-q")
		},
		whole: oldOrNew(func(p *place) error { return p.is("0.1.0") }, after),
		after: func(p *place, _ *faults.Run) error { return errors.Join(after(p), tidy(p, 2)) }}
}

// locking writes a lock over an older one.
func locking(t *testing.T) *writing {
	args := []string{"plugin", "lock", "toy", "--out", "out/graft.lock", "-q"}
	says := func(version string) func(*place) error {
		return func(p *place) error {
			lock, err := lockfile.Read(p.at("out", "graft.lock"))
			if err == nil && (len(lock.Plugins) != 1 || lock.Plugins[0].Version != version) {
				err = fmt.Errorf("the lock says %+v, want version %s", lock.Plugins, version)
			}
			return err
		}
	}
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			p.layToys()
			p.must("plugin", "install", "in/0.1.0", "-q")
			p.must(args...)
			p.must("plugin", "upgrade", "toy", "in/0.2.0", "-q")
		},
		whole: oldOrNew(says("0.1.0"), says("0.2.0")),
		after: func(p *place, _ *faults.Run) error {
			if found := files(p.t, p.at("out")); len(found) != 1 {
				return fmt.Errorf("beside the lock lie %d files", len(found)-1)
			}
			return says("0.2.0")(p)
		}}
}

// bundling writes all that a lock names to a new folder.
func bundling(t *testing.T) *writing {
	var want string
	whole := func(p *place) error {
		found, err := json.Marshal(files(p.t, p.at("out", "bundle")))
		if want == "" {
			want = string(found)
		}
		if err == nil && (string(found) != want || !strings.Contains(want, "toy-0.1.0.tar.gz")) {
			err = errors.New("the bundle has other files")
		}
		return err
	}
	none := func(p *place) error {
		if plugintest.Exists(p.at("out", "bundle")) {
			return errors.New("there is a bundle")
		}
		return nil
	}
	return &writing{args: []string{"plugin", "bundle", "out/bundle", "--lock", "in/graft.lock", "-q"},
		again: []string{"plugin", "bundle", "out/another", "--lock", "in/graft.lock", "-q"},
		prepare: func(p *place) {
			p.layToys()
			p.must("plugin", "install", "in/0.1.0", "-q")
			p.must("plugin", "lock", "toy", "--out", "in/graft.lock", "-q")
		},
		whole: oldOrNew(none, whole),
		after: func(p *place, _ *faults.Run) error {
			for name := range files(p.t, p.at("out")) {
				if top, _, _ := strings.Cut(name, "/"); top != "bundle" && top != "another" {
					return fmt.Errorf("%s is left", name)
				}
			}
			if plugintest.Exists(p.at("out", "bundle")) {
				return whole(p)
			}
			return nil
		}}
}
