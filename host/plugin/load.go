package plugin

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/internal/driver"
	"github.com/opgraft/graft/host/plugin/library"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/sealed"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/plugin/trust"
)

// Plugin is a loaded library: its code is in this process and stays until the process ends, because ONNX
// Runtime holds pointers into it. Methods are safe from several goroutines.
type Plugin struct {
	Folder   string
	Path     string // of the library
	SHA256   string // of the library, in hexadecimal
	Manifest *manifest.Manifest
	Variant  *manifest.Variant
	Info     *Info // what the library says of itself

	note    *library.Note
	content *sealed.File // of the library, until it is loaded: what was hashed is what is loaded
	apart   bool         // its code is in another process: table and ortOps are nil
	table   *abi.Plugin
	ortOps  *abi.ORTOps
}

// OpenOptions say what Open accepts.
type OpenOptions struct {
	// Device picks the variant; empty is cpu.
	Device string
	// AcceptUnverified loads a library that is not recorded, from a folder that others may write to: its
	// author's choice while developing. The environment variable GRAFT_PLUGIN_UNVERIFIED=1 does the same.
	AcceptUnverified bool
	// Trust is what was verified; nil is the user's record.
	Trust *trust.Record
	// SHA256, if not "", is that which the library must have, in hexadecimal.
	SHA256 string
	// Files, if not nil, are those that the folder must hold.
	Files content.Files
	// Locked, if not nil, says which plugins are opened, and what their folders must hold.
	Locked *lockfile.File
}

// loaded holds the libraries of this process by the hash of their content: no content is loaded twice, and two
// versions of a plugin stand side by side.
var loaded struct {
	sync.Mutex
	libraries map[string]*Plugin // that are in use
	code      map[string]code    // all, with those that were refused once they were loaded
}

// code is a loaded library. The C library knows it by the path of its content, which another file would get if it was
// closed.
type code struct {
	handle  uintptr
	content *sealed.File
}

// Open loads the plugin of a folder for a Device: it reads the manifest and the ELF file, requires the
// folder's content to be recorded, loads the bytes that it read and checks that they are what the manifest says. A
// library for CUDA is not loaded, and its driver not started, before all that. Errors are *diagnostic.Error of the
// kinds ErrManifest, ErrIncompatible, ErrDevice, ErrVerification and ErrNotFound.
func Open(folder string, opts OpenOptions) (*Plugin, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: folder, Found: err.Error(), Cause: err}
	}
	p, err := prepare(folder, opts.Device)
	if err != nil {
		return nil, err
	}
	defer p.release()
	if p.note != nil && p.note.Device == "cuda" {
		if err := driver.Require(p.Path, p.note.CUDA); err != nil {
			return nil, err
		}
	}
	if err := p.require(opts); err != nil {
		return nil, err
	}
	loaded.Lock()
	defer loaded.Unlock()
	if old, ok := loaded.libraries[p.SHA256]; ok {
		p.table, p.ortOps, p.Info = old.table, old.ortOps, old.Info
		return p, p.agree()
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	loaded.libraries[p.SHA256] = p
	return p, p.agree()
}

// prepare does all that can be done without running the library.
func prepare(folder, device string) (*Plugin, error) {
	if device == "" {
		device = "cpu"
	}
	m, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	v, err := m.VariantFor(device, manifest.ThisPlatform)
	if err != nil {
		return nil, err
	}
	p := &Plugin{Folder: folder, Path: filepath.Join(folder, v.File), Manifest: m, Variant: v}
	l, content, err := library.Seal(p.Path)
	if err != nil {
		return nil, err
	}
	if err = l.Check(library.HostABI, manifest.ThisPlatform); err == nil {
		err = l.Agree(m, v)
	}
	if err != nil {
		content.Close()
		return nil, err
	}
	p.note, p.content, p.SHA256 = l.Note, content, content.SHA256
	return p, nil
}

// native runs code of the library's that may start the CUDA runtime, which takes signal handlers that Go
// needs.
func (p *Plugin) native(f func()) {
	if p.Variant.Device == "cuda" {
		signals.Preserve(f)
		return
	}
	f()
}

// link has the system's loader load the content that was hashed, once.
func (p *Plugin) link() (uintptr, error) {
	if c, ok := loaded.code[p.SHA256]; ok {
		return c.handle, nil
	}
	const noLoad = 4 // RTLD_NOLOAD: only what is loaded already
	path, done, err := p.content.Loadable(func(path string) bool {
		_, err := purego.Dlopen(path, purego.RTLD_NOW|noLoad)
		return err == nil
	})
	if err != nil {
		return 0, &diagnostic.Error{Kind: refusal.ErrStore, Path: p.Path, Found: "cannot copy it for loading: " + err.Error(),
			Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	defer done()
	var handle uintptr
	p.native(func() { handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL) })
	if err != nil {
		text := strings.TrimPrefix(diagnostic.Printable(err.Error()), path+": ")
		return 0, &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: p.Path,
			Found: "found that the system cannot load it: " + text,
			Fix:   "install what it needs, or a build of the plugin for this system", Cause: err}
	}
	if loaded.code == nil {
		loaded.code, loaded.libraries = map[string]code{}, map[string]*Plugin{}
	}
	loaded.code[p.SHA256] = code{handle, p.content}
	p.content = nil
	return handle, nil
}

// release gives the content back when it was not loaded.
func (p *Plugin) release() {
	if p.content != nil {
		p.content.Close()
	}
	p.content = nil
}

// load runs the library's constructors and reads its table and description.
func (p *Plugin) load() error {
	refuse := func(found, need, fix string) error { return refusal.Incompatible(p.Path, found, need, fix) }
	// The C library holds the text of an error for the thread that met it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := p.link()
	if err != nil {
		return err
	}
	entry, err := purego.Dlsym(handle, library.EntrySymbol)
	if err != nil {
		return refuse("no symbol "+library.EntrySymbol, "the entry point of a graft plugin", "build the plugin again")
	}
	address, _, _ := purego.SyscallN(entry)
	table := pointer[abi.Plugin](address)
	switch need := uint64(unsafe.Sizeof(abi.Plugin{})); {
	case table == nil:
		return refuse("a null table of functions", "a table", "report this to its author")
	case table.Size < need:
		return refuse(fmt.Sprintf("a table of %d bytes", table.Size), fmt.Sprintf("at least %d", need),
			"build the plugin with the header of ABI "+library.HostABI.String())
	}
	version := manifest.ABIVersion{Major: table.ABIMajor, Minor: table.ABIMinor}
	if !library.HostABI.Accepts(version) {
		return library.RefuseABI(p.Path, "a table for ABI "+version.String(), library.HostABI, version.Major, version.Minor)
	}
	if version != p.Manifest.ABI {
		return refuse("a table for ABI "+version.String(), p.Manifest.ABI.String()+" as in "+manifest.FileName,
			"build the library and the manifest from the same source")
	}
	for _, f := range []struct {
		name    string
		address uintptr
	}{
		{"describe", table.Describe}, {"probe", table.Probe}, {"create", table.Create}, {"infer_shapes", table.InferShapes},
		{"workspace_size", table.WorkspaceSize}, {"run", table.Run}, {"destroy", table.Destroy},
	} {
		if f.address == 0 {
			return refuse("a table without the function "+f.name, "all but fold", "report this to its author")
		}
	}
	p.table = table
	if p.ortOps, err = p.findOrtOps(); err != nil {
		return err
	}
	p.Info, err = p.describe()
	return err
}

// findOrtOps looks through the table's extensions.
func (p *Plugin) findOrtOps() (*abi.ORTOps, error) {
	const limit = 64
	extension := p.table.Next
	for n := 0; extension != nil && n < limit; n++ {
		if abi.GoString(extension.Name) == abi.ExtensionORTOps {
			ops := (*abi.ORTOps)(unsafe.Pointer(extension))
			if ops.Size < uint64(unsafe.Sizeof(abi.ORTOps{})) || ops.Get == 0 {
				return nil, refusal.Incompatible(p.Path, "a damaged extension "+abi.ExtensionORTOps, "one with its function",
					"report this to its author")
			}
			return ops, nil
		}
		extension = extension.Next
	}
	return nil, refusal.Incompatible(p.Path, "no extension "+abi.ExtensionORTOps, "the operators for ONNX Runtime",
		"build the plugin with one of the kits that graft plugin sdk writes, which have it")
}

// agree checks what the library says of itself against the manifest.
func (p *Plugin) agree() error {
	differ := func(what, found, need string) error {
		return refusal.Incompatible(p.Path, fmt.Sprintf("%s %q in the library's description", what, diagnostic.Clip(found)),
			fmt.Sprintf("%q as in %s", need, manifest.FileName), "build the library and the manifest from the same source")
	}
	switch {
	case p.Info.Name != p.Manifest.Name:
		return differ("name", p.Info.Name, p.Manifest.Name)
	case p.Info.Version != p.Manifest.Version:
		return differ("version", p.Info.Version, p.Manifest.Version)
	case p.Info.Device != p.Variant.Device:
		return differ("device", p.Info.Device, p.Variant.Device)
	}
	if p.Variant.Device != "cpu" {
		return nil // has some of them; the CPU's has all, and folds
	}
	for _, name := range p.Manifest.Emits() {
		if !slices.ContainsFunc(p.Info.Operators, func(op signature.Operator) bool { return op.Name == name }) {
			var have []string
			for _, op := range p.Info.Operators {
				have = append(have, diagnostic.Clip(op.Name))
			}
			return refusal.Incompatible(p.Path, "operators "+strings.Join(have, ", ")+" in the library's description",
				name+" too, as in "+manifest.FileName, "give the operator one name in both, and build the library again")
		}
	}
	if err := p.fulfils(); err != nil {
		return err
	}
	for i := range p.Manifest.Operators {
		if p.Manifest.Operators[i].Folds() && !p.apart && p.table.Fold == 0 {
			return refusal.Incompatible(p.Path, "no fold function",
				"one, as operator "+p.Manifest.Operators[i].Name+" of "+manifest.FileName+" folds constants",
				"build the library and the manifest from the same source")
		}
	}
	return nil
}

// fulfils checks the described operators against the contracts of what the manifest says that they provide.
func (p *Plugin) fulfils() error {
	for _, op := range p.Manifest.Operators {
		for _, name := range op.Provides {
			if err := signature.Find(p.Info.Operators, op.Name).Fulfils(capability.Find(name)); err != nil {
				return refusal.Incompatible(p.Path, fmt.Sprintf("that %s does not provide %s: %v", op.Name, name, err), "",
					"correct the operator as abi/README.md says of "+name+", or take provides out of "+manifest.FileName)
			}
		}
	}
	return nil
}

// OrtOps hands out the plugin's operators as pointers to OrtCustomOp, for a registrar that builds the
// session's domain. apiBase is the runtime's OrtApiBase.
func (p *Plugin) OrtOps(apiBase uintptr) ([]uintptr, error) {
	if err := p.elsewhere("handing out operators"); err != nil {
		return nil, err
	}
	var (
		ops   = new(*uintptr)
		count = new(uint64)
	)
	err := p.invoke("handing out operators", p.ortOps.Get, newMessage(), apiBase, uintptr(unsafe.Pointer(ops)),
		uintptr(unsafe.Pointer(count)))
	if err != nil {
		return nil, err
	}
	if *count > maxOperators || (*count > 0 && *ops == nil) {
		return nil, &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path,
			Found: fmt.Sprintf("handing out operators gave %d of them", *count)}
	}
	return slices.Clone(unsafe.Slice(*ops, *count)), nil
}

// Probe asks how well the plugin suits a Device: 0 with a reason when it cannot run there, else up to 100.
func (p *Plugin) Probe(device tensor.Device) (score int, reason string, err error) {
	if err := p.elsewhere("probe"); err != nil {
		return 0, "", err
	}
	where, err := device.ABI()
	if err != nil {
		return 0, "", err
	}
	at, result, m := &where, &abi.ProbeResult{Size: uint64(unsafe.Sizeof(abi.ProbeResult{}))}, newMessage()
	p.native(func() {
		err = p.invoke("probe", p.table.Probe, m, uintptr(unsafe.Pointer(at)), uintptr(unsafe.Pointer(result)))
	})
	if err != nil {
		return 0, "", err
	}
	if result.Score < 0 || result.Score > 100 {
		return 0, "", &diagnostic.Error{Kind: refusal.ErrKernel, Path: p.Path,
			Found: fmt.Sprintf("probe gave the score %d", result.Score), Needed: "0 to 100"}
	}
	if result.Score == 0 {
		reason = m.string()
	}
	return int(result.Score), reason, nil
}
