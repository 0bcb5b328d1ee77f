package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
	onnxmodel "github.com/opgraft/graft/host/onnx/model"
)

// Request is what is wanted of a repository.
type Request struct {
	Reference
	Files   []string // patterns of files, in place of those that a model needs
	Variant string   // "" is float32, or the only one
	To      string   // a folder for the files, in place of the cache
	DryRun  bool     // nothing is brought
}

// Pulled is what came of it.
type Pulled struct {
	Repository string       `json:"repository"`
	Revision   string       `json:"revision"`
	Commit     string       `json:"commit"`
	Variant    string       `json:"variant,omitempty"` // none where patterns chose
	Folder     string       `json:"folder,omitempty"`  // that graft opens; none of a dry run
	Bytes      int64        `json:"bytes"`
	Missing    int64        `json:"missing_bytes"` // that were to be brought
	Files      []PulledFile `json:"files"`
}

// PulledFile is one file of it.
type PulledFile struct {
	Path   string `json:"path"` // in the repository
	As     string `json:"as"`   // in the folder
	Bytes  int64  `json:"bytes"`
	Hash   string `json:"hash,omitempty"` // SHA-256, or SHA-1 of git's blob
	Cached bool   `json:"cached"`         // was there before
}

// workers is how many files come at once.
const workers = 4

// job is one pull.
type job struct {
	*Client
	Request
	page   string
	commit string
	cache  *cache
	list   *listing
	model  *model            // nil where patterns choose
	names  map[string]string // names in the folder by path in the repository, of all files that are wanted
	to     destination
	out    *Pulled

	mu          sync.Mutex
	done, total int64
}

// destination is where files get their names.
type destination interface {
	// has says whether a file is in place, and how many bytes of it are there where it is not.
	has(f File, as string) (whole bool, part int64)
	// put brings a file to its place. It is called for files that are in place, too.
	put(ctx context.Context, f File, as string) error
	// open is where a file that is in place is read.
	open(f File, as string) string
	// finish gives the folder of the model, once all files are in place.
	finish(ctx context.Context) (string, error)
	// disk is a folder on the disk that takes the files.
	disk() string
}

// Pull brings a model.
func (c *Client) Pull(ctx context.Context, q Request) (*Pulled, error) {
	j := &job{Client: c, Request: q, page: c.s.Endpoint.JoinPath(q.Repository).String(),
		cache: newCache(c.s.Cache, q.Repository), names: map[string]string{}}
	if err := j.look(ctx); err != nil {
		return nil, err
	}
	if err := j.choose(); err != nil {
		return nil, err
	}
	j.to = &cached{j}
	if q.To != "" {
		f, err := openFolder(j, q.To)
		if err != nil {
			return nil, err
		}
		defer f.close()
		j.to = f
	}
	j.out = &Pulled{Repository: q.Repository, Revision: q.Revision, Commit: j.commit, Files: []PulledFile{}}
	if j.model != nil {
		j.out.Variant = j.model.label()
	}
	known := map[string]bool{}
	for {
		if err := j.distinct(); err != nil {
			return nil, err
		}
		files := j.add(known)
		if q.DryRun {
			return j.out, nil
		}
		if err := j.bringAll(ctx, files); err != nil {
			return nil, err
		}
		more, err := j.referred()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	folder, err := j.to.finish(ctx)
	j.out.Folder = folder
	return j.out, err
}

// look finds the commit and its files.
func (j *job) look(ctx context.Context) (err error) {
	if j.s.Offline {
		return j.lookHere()
	}
	if j.commit, err = j.Client.commit(ctx, j.Reference); err != nil {
		return err
	}
	files, err := j.Client.list(ctx, j.Reference, j.commit)
	j.list = newListing(files)
	return err
}

// lookHere finds them in the cache.
func (j *job) lookHere() error {
	missing := func(what string, err error) error {
		return &diagnostic.Error{Kind: ErrChoice, Path: j.cache.at(),
			Found: "the cache does not have " + what + ", and HF_HUB_OFFLINE is set", Needed: "a model that was brought before",
			Fix: "unset HF_HUB_OFFLINE", Cause: err}
	}
	commit, err := j.cache.commit(j.Revision)
	if err != nil {
		return missing(j.Reference.String(), err)
	}
	j.commit = commit
	root := j.cache.snapshot(commit)
	var files []File
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			return nil // a link to what was removed
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f := File{Path: filepath.ToSlash(rel), Size: info.Size()}
		if target, err := os.Readlink(p); err == nil && hashPattern.MatchString(filepath.Base(target)) {
			f.Hash = filepath.Base(target)
		}
		files = append(files, f)
		return nil
	})
	if err != nil || len(files) == 0 {
		return missing("files of "+j.Reference.String(), err)
	}
	j.list = newListing(files)
	return nil
}

// choose says which files are wanted, as far as their names tell.
func (j *job) choose() error {
	if len(j.Files) > 0 {
		paths, err := j.list.matching(j.page, j.Files)
		for _, p := range paths {
			j.names[p] = p
		}
		return err
	}
	m, err := j.list.choose(j.Reference, j.page, j.Variant)
	if err != nil {
		return err
	}
	j.model = m
	for _, p := range j.list.besides(m) {
		j.names[p] = m.asBeside(p)
	}
	for _, p := range j.list.graphFiles(m) {
		j.names[p] = m.asGraph(p)
	}
	return nil
}

// asGraph is the name that a graph, or a file of its weights, has in the folder: of a variant that which programs
// look for.
func (m *model) asGraph(p string) string {
	if m.plain {
		return relative(m.home, p)
	}
	for base, graph := range m.graphs {
		if p == graph {
			return "onnx/" + base + graphEnd
		}
	}
	return "onnx/" + relative(m.folder, p) // a graph names its weights itself
}

// asBeside is the name of any other file.
func (m *model) asBeside(p string) string { return relative(m.home, p) }

// distinct refuses files of which two would have one name: a variant's graph has the name of the float32 one, whose
// data another file may have taken.
func (j *job) distinct() error {
	taken := map[string]string{}
	for _, p := range slices.Sorted(maps.Keys(j.names)) {
		as := j.names[p]
		if other, ok := taken[as]; ok {
			return &diagnostic.Error{Kind: ErrChoice, Path: j.page,
				Found:  fmt.Sprintf("found that %s and %s would both be %s", quoted(other), quoted(p), quoted(as)),
				Needed: "names that differ",
				Fix:    "bring them by their own: --file PATTERN"}
		}
		taken[as] = p
	}
	return nil
}

// add takes files that are wanted into the result, those that are not known yet.
func (j *job) add(known map[string]bool) []File {
	var files []File
	for _, p := range slices.Sorted(maps.Keys(j.names)) {
		if known[p] {
			continue
		}
		known[p] = true
		f := j.list.files[p]
		whole, part := j.to.has(f, j.names[p])
		files = append(files, f)
		j.out.Files = append(j.out.Files, PulledFile{Path: p, As: j.names[p], Bytes: f.Size, Hash: f.Hash, Cached: whole})
		if j.out.Bytes += f.Size; !whole {
			j.out.Missing += f.Size
			j.total += f.Size
			j.done += part
		}
	}
	slices.SortFunc(j.out.Files, func(a, b PulledFile) int { return cmp.Compare(a.Path, b.Path) })
	return files
}

// moved is told of bytes that came.
func (j *job) moved(n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = min(j.done+n, j.total)
	j.o.Progress(j.done, j.total)
}

// bringAll brings files, several at once. The first failure ends the others.
func (j *job) bringAll(ctx context.Context, files []File) error {
	if err := j.room(); err != nil {
		return err
	}
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.Size, b.Size) }) // configurations first
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	next := make(chan File)
	for range min(workers, len(files)) {
		all.Go(func() {
			for f := range next {
				if err := j.to.put(ctx, f, j.names[f.Path]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- f:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// room says before the first byte that a disk cannot take them all.
func (j *job) room() error {
	need := j.total - j.done
	folder := j.to.disk()
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(folder, &stat)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(folder) != folder {
			folder = filepath.Dir(folder)
			continue
		}
		if free := int64(stat.Bavail) * int64(stat.Bsize); err == nil && free < need {
			return &diagnostic.Error{Kind: ErrLocal, Path: j.to.disk(), Found: "found " + Size(free) + " of free space",
				Needed: Size(need), Fix: "make room, or name a folder on another disk: HF_HUB_CACHE, --to DIR"}
		}
		return nil
	}
}

// referred finds out, of the files that are in place, which others they refer to. more is whether there are any.
func (j *job) referred() (more bool, err error) {
	if j.model == nil {
		return false, nil
	}
	want := func(p, as string) {
		if _, ok := j.names[p]; !ok {
			j.names[p], more = as, true
		}
	}
	for _, graph := range slices.Sorted(maps.Values(j.model.graphs)) {
		at := j.to.open(j.list.files[graph], j.names[graph])
		locations, err := onnxmodel.Locations(at)
		if err != nil {
			return false, err
		}
		for _, location := range locations {
			p := path.Join(j.model.folder, location)
			if _, ok := j.list.files[p]; !ok {
				return false, &diagnostic.Error{Kind: ErrChoice, Path: j.page,
					Found:  "the graph " + graph + " has weights in " + quoted(location) + ", which " + j.lacks(),
					Needed: "all files of the model"}
			}
			want(p, j.model.asGraph(p))
		}
	}
	modules := path.Join(j.model.home, "modules.json")
	if _, ok := j.names[modules]; !ok {
		return more, nil
	}
	var list []struct{ Path, Type string }
	at := j.to.open(j.list.files[modules], j.names[modules])
	data, err := storage.ReadRegular(at, limit.Config)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return false, &diagnostic.Error{Kind: ErrContent, Path: at, Found: "cannot read: " + diagnostic.Cause(err),
			Needed: "the modules of a sentence-transformers model", Cause: err}
	}
	for _, one := range list {
		if one.Path == "" || !filepath.IsLocal(one.Path) {
			continue // the root; or no folder of the repository, as who opens it says
		}
		folder := path.Join(j.model.home, one.Path)
		needed := j.list.module(folder)
		if strings.HasSuffix(one.Type, ".Transformer") {
			needed = j.list.configured(folder)
		}
		for _, p := range needed {
			want(p, j.model.asBeside(p))
		}
	}
	return more, nil
}

func (j *job) lacks() string {
	if j.s.Offline {
		return "the cache does not have"
	}
	return "the repository does not have"
}

// cached puts files into the cache.
type cached struct{ *job }

func (c *cached) has(f File, as string) (bool, int64) {
	if c.s.Offline || c.cache.has(f) {
		return true, 0
	}
	return false, c.cache.part(f)
}

func (c *cached) put(ctx context.Context, f File, as string) error {
	if c.s.Offline {
		return nil
	}
	if _, err := c.bring(ctx, c.cache, c.Reference, c.commit, f, c.moved); err != nil {
		return err
	}
	return c.cache.link(ctx, c.commit, f.Path, f.Hash)
}

func (c *cached) open(f File, as string) string { return c.cache.pointer(c.commit, f.Path) }

func (c *cached) disk() string { return c.cache.root }

func (c *cached) finish(ctx context.Context) (string, error) {
	if !c.s.Offline {
		if err := c.cache.refer(ctx, c.Revision, c.commit); err != nil {
			return "", err
		}
	}
	if c.model == nil {
		return c.cache.snapshot(c.commit), nil
	}
	if c.model.plain {
		return c.cache.pointer(c.commit, c.model.home), nil
	}
	links := map[string]string{}
	for p, as := range c.names {
		links[as] = p
	}
	return c.cache.view(ctx, c.commit, folderName(c.model.label()), links)
}
