package model

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// resolver finds the files of external data. A location is looked up beside the
// model as the caller named it, links and all, because a Hugging Face cache
// leaves links there; the file that the links lead to must lie in the model's
// folder or in the folder of the file that the model itself is a link to.
type resolver struct {
	lookIn  []string // folders that locations are joined to, first match wins
	roots   []string // folders, without links, that may hold the data
	found   map[string]*source
	sources map[string]*source // by path without links
	limit   int
	open    atomic.Int32
}

// newResolver resolves the external data of the model at path, whose links lead to resolved. Both are
// absolute.
func newResolver(path, resolved string, limit int) (*resolver, error) {
	folder := filepath.Dir(path)
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, failure(folder, "find the model's folder", err)
	}
	r := folderResolver(folder, root, limit)
	if own := filepath.Dir(resolved); own != root {
		r.lookIn = append(r.lookIn, own)
		r.roots = append(r.roots, own)
	}
	r.addRoots(storeRoots(path, resolved))
	return r, nil
}

func folderResolver(folder, root string, limit int) *resolver {
	return &resolver{lookIn: []string{folder}, roots: []string{root}, found: map[string]*source{},
		sources: map[string]*source{}, limit: limit}
}

// resolve gives the file at a location.
func (r *resolver) resolve(location string) (*source, error) {
	if s := r.found[location]; s != nil {
		return s, nil
	}
	if err := checkLocation(location); err != nil {
		return nil, err
	}
	if len(r.lookIn) == 0 {
		return nil, &diagnostic.Error{Kind: ErrExternalData,
			Found: "has external data but no folder to find it in: found location " + quote(location),
			Fix:   "give Parse the folder, or open the model from its file"}
	}
	var final string
	var err error
	for _, folder := range r.lookIn {
		var e error
		if final, e = filepath.EvalSymlinks(filepath.Join(folder, filepath.FromSlash(location))); e == nil {
			err = nil
			break
		}
		if err == nil {
			err = e
		}
	}
	if err != nil {
		e := failure("", "find the external data file "+quote(location), err)
		e.Kind, e.Fix = ErrExternalData, "fetch the external data files of the model too, into its folder"
		return nil, e
	}
	if !r.inside(final) {
		return nil, &diagnostic.Error{Kind: ErrExternalData,
			Found:  "external data leads out of the model's folder: found " + quote(location) + " at " + final,
			Needed: "a file in " + strings.Join(r.roots, " or "), Fix: "copy the file into the model's folder"}
	}
	s := r.sources[final]
	if s == nil {
		if len(r.sources) >= r.limit {
			return nil, &diagnostic.Error{Kind: ErrLimit,
				Found:  fmt.Sprintf("has too many external data files: found more than %d", r.limit),
				Needed: fmt.Sprintf("at most %d", r.limit), Fix: fixLimit}
		}
		if s, err = fileSource(final, final); err != nil {
			e := *err.(*diagnostic.Error)
			e.Kind, e.Path, e.Found = ErrExternalData, "", "external data file "+quote(location)+" "+e.Found
			e.Needed, e.Fix = "a file", fixDamaged
			return nil, &e
		}
		s.open = &r.open
		r.sources[final] = s
	}
	r.found[location] = s
	return s, nil
}

func (r *resolver) inside(final string) bool {
	for _, root := range r.roots {
		rel, err := filepath.Rel(root, final)
		if err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// checkLocation refuses what a location must not say, before any file is asked.
func checkLocation(location string) error {
	refuse := func(why string) error {
		return &diagnostic.Error{Kind: ErrExternalData,
			Found:  "external data has a location that is not allowed: found " + quote(location) + ", " + why,
			Needed: "a path inside the model's folder", Fix: "do not trust this model, or save it anew with its data beside it"}
	}
	switch {
	case location == "":
		return refuse("which is empty")
	case strings.HasPrefix(location, "*/_ORT_MEM_ADDR_/*"):
		return refuse("which is an address in memory")
	case strings.ContainsRune(location, 0):
		return refuse("which holds a zero byte")
	case strings.HasPrefix(location, "/") || strings.HasPrefix(location, `\`) || filepath.IsAbs(location) ||
		(len(location) > 1 && location[1] == ':'):
		return refuse("which is absolute")
	}
	for _, part := range strings.FieldsFunc(location, func(c rune) bool { return c == '/' || c == '\\' }) {
		if part == ".." {
			return refuse("which leads upwards")
		}
	}
	return nil
}

// externalReference finds and checks the bytes of a tensor with external data.
func (r *reader) externalReference(p *tensorParts, elements int64) (reference, error) {
	fault := func(what, found, needed string) (reference, error) {
		what = "tensor " + quote(p.name) + " " + what
		if found != "" {
			what += ": found " + found
		}
		return reference{}, &diagnostic.Error{Kind: ErrDamaged, Found: what, Needed: needed, Fix: fixDamaged}
	}
	if p.dataType == onnx.Tensor_STRING {
		return fault("has strings in external data", "", "strings in the model itself")
	}
	number := func(key, text string, absent int64) (int64, error) {
		if text == "" {
			return absent, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			_, e := fault("has an external data "+key+" that makes no sense", quote(text), "a number from 0 to 2^63-1")
			return 0, e
		}
		return n, nil
	}
	offset, err := number("offset", p.offset, 0)
	if err != nil {
		return reference{}, err
	}
	length, err := number("length", p.length, -1)
	if err != nil {
		return reference{}, err
	}
	src, err := r.files.resolve(p.location)
	if err != nil {
		return reference{}, err
	}
	if ElementBits(p.dataType) != 0 {
		want, err := rawSize(p.name, p.dataType, elements)
		if err != nil {
			return reference{}, err
		}
		if length < 0 {
			length = want
		}
		if length != want {
			return fault("has external data of the wrong size", fmt.Sprintf("%d bytes", length),
				fmt.Sprintf("%d for %s %s", want, TypeName(p.dataType), shapeText(p.dims)))
		}
	}
	if length < 0 {
		length = max(src.size-offset, 0)
	}
	if offset > src.size || length > src.size-offset {
		return fault("lies outside its external data file", fmt.Sprintf("%d bytes at %d", length, offset),
			fmt.Sprintf("an end at or before %d, the size of %s", src.size, quote(p.location)))
	}
	return reference{src: src, offset: offset, length: length, field: fieldRawData}, nil
}
