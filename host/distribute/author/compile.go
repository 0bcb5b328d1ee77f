package author

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// compiler is a program that compiles, with what it is called for people.
type compiler struct{ path, language string }

// find looks for a compiler: a variable's, else the first of some names in the PATH.
func find(language, variable string, names ...string) (compiler, error) {
	if given := os.Getenv(variable); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return compiler{}, &diagnostic.Error{Kind: ErrCompiler, Path: given,
				Found: fmt.Sprintf("found no such program, which %s names", variable), Needed: "a compiler for " + language,
				Cause: err}
		}
		return compiler{path, language}, nil
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return compiler{path, language}, nil
		}
	}
	return compiler{}, &diagnostic.Error{Kind: ErrCompiler, Path: "PATH",
		Found: "found none of " + strings.Join(names, ", "), Needed: "a compiler for " + language,
		Fix: "install one (Debian: apt install g++; Rust: rustup), or set " + variable}
}

// run runs a compiler. What it prints goes to Output, and the error says what it was to do.
func (b *build) run(c compiler, folder, doing string, env []string, args ...string) error {
	cmd := exec.CommandContext(b.ctx, c.path, args...)
	cmd.Dir = folder
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if b.Output != nil && out.Len() > 0 {
		if _, err := b.Output.Write(append(bytes.TrimRight(out.Bytes(), "\n"), '\n')); err != nil {
			return err
		}
	}
	if err == nil {
		return nil
	}
	return &diagnostic.Error{Kind: ErrCompile, Path: doing,
		Found: fmt.Sprintf("%s refused it: %v", filepath.Base(c.path), err), Fix: "correct what the compiler says above",
		Cause: err}
}

// native compiles C++ and C sources as abi/cmake does, each for itself, and links them.
func (b *build) native(sources []string) (string, error) {
	isC := !slices.ContainsFunc(sources, func(s string) bool { return filepath.Ext(s) != ".c" })
	linker, err := compiler{}, error(nil)
	compilers := map[bool]compiler{}
	for _, s := range sources {
		c := filepath.Ext(s) == ".c"
		if _, ok := compilers[c]; ok {
			continue
		}
		if c {
			compilers[c], err = find("C", "CC", "cc", "gcc", "clang")
		} else {
			compilers[c], err = find("C++", "CXX", "c++", "g++", "clang++")
		}
		if err != nil {
			return "", err
		}
	}
	linker = compilers[isC]
	isa, err := b.isa(sources)
	if err != nil {
		return "", err
	}
	if err := b.define("cpu", isa); err != nil {
		return "", err
	}
	b.harden(linker)
	objects := make([]string, len(sources))
	problems := make([]error, len(sources))
	free := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i, source := range sources {
		objects[i] = filepath.Join(b.objects, filepath.Base(source)+".o")
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			b.step("compiling %s", filepath.Base(source))
			c := filepath.Ext(source) == ".c"
			args := append(b.flags(c), "-c", source, "-o", objects[i])
			problems[i] = b.run(compilers[c], b.folder, source, nil, args...)
		})
	}
	all.Wait()
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	linked := filepath.Join(b.objects, "lib"+stem(b.manifest.Name)+".so")
	b.step("linking %s", filepath.Base(linked))
	return linked, b.run(linker, b.folder, linked, nil,
		append(append([]string{"-shared", "-o", linked}, objects...), b.linking(isC)...)...)
}

// flags are the options of a source, which abi/cmake/GraftPlugin.cmake and Hardening.cmake give too.
func (b *build) flags(c bool) []string {
	list := []string{"-std=c++17", "-fvisibility-inlines-hidden"}
	if c {
		list = []string{"-std=c11"}
	}
	list = append(list, "-O3", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-ffunction-sections",
		"-fdata-sections", "-fno-math-errno", "-fno-trapping-math",
		"-I", b.sdk, "-I", filepath.Join(b.sdk, "kit"), "-include", filepath.Join(b.objects, definitions))
	return append(list, b.hardCompile...)
}

func (b *build) linking(c bool) []string {
	list := []string{"-Wl,--version-script=" + filepath.Join(b.sdk, "cmake", "graft.map"), "-Wl,--gc-sections",
		"-Wl,-z,nodelete", "-Wl,-z,defs", "-static-libgcc"}
	if c {
		list = append(list, "-lm")
	} else {
		list = append(list, "-static-libstdc++")
	}
	return append(list, b.hardLink...)
}

// harden asks the compiler which of the options against errors it knows.
func (b *build) harden(c compiler) {
	knows := func(args ...string) bool {
		cmd := exec.CommandContext(b.ctx, c.path, append(args, "-Werror", "-O2", "-x", "c", "-", "-o", os.DevNull)...)
		cmd.Stdin = strings.NewReader("#include <string.h>\nint f(void) { return 0; }\n")
		return cmd.Run() == nil
	}
	b.hardCompile, b.hardLink = nil, nil
	for _, flag := range []string{"-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection=full",
		"-mbranch-protection=standard"} {
		if knows("-c", flag) {
			b.hardCompile = append(b.hardCompile, flag)
		}
	}
	level := "2"
	if knows("-c", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3") {
		level = "3"
	}
	b.hardCompile = append(b.hardCompile, "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE="+level)
	for _, flag := range []string{"noexecstack", "relro", "now", "separate-code", "text"} {
		if knows("-shared", "-fPIC", "-Wl,-z,"+flag) {
			b.hardLink = append(b.hardLink, "-Wl,-z,"+flag)
		}
	}
}

// definitions is the file of what the manifest says for sources: a summary is no word for a command line.
const definitions = "plugin.h"

func (b *build) define(device, isa string) error {
	if err := os.MkdirAll(b.objects, 0o755); err != nil {
		return cannotWrite(b.objects, err)
	}
	var text strings.Builder
	for _, d := range [][2]string{{"NAME", b.manifest.Name}, {"VERSION", b.manifest.Version},
		{"SUMMARY", b.manifest.Summary}, {"DEVICE", device}, {"ISA", isa}} {
		fmt.Fprintf(&text, "#define GRAFT_PLUGIN_%s \"%s\"\n", d[0], literal(d[1]))
	}
	if device == "cuda" {
		text.WriteString("#define GRAFT_PLUGIN_SM \"80,90\"\n#define GRAFT_PLUGIN_CUDA \"13\"\n")
		return write(filepath.Join(b.objects, cudaDefinitions), []byte(text.String()))
	}
	return write(filepath.Join(b.objects, definitions), []byte(text.String()))
}

// literal is a text between the quotes of C.
func literal(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\?`, c) >= 0 {
			fmt.Fprintf(&out, `\%03o`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// isa lists the instruction sets that the library chooses from: the baseline, and where a source takes kernels for
// several from graft/isa.h, those.
func (b *build) isa(sources []string) (string, error) {
	if runtime.GOARCH == "arm64" {
		return "armv8-a", nil
	}
	for _, s := range sources {
		text, err := os.ReadFile(s)
		if err != nil {
			return "", cannotRead(s, err)
		}
		if bytes.Contains(text, []byte("GRAFT_KERNELS(")) {
			return "x86-64,sse4.2,avx2,avx512f", nil
		}
	}
	return "x86-64", nil
}

func cannotRead(path string, err error) error {
	return &diagnostic.Error{Kind: ErrCompile, Path: path, Found: "cannot read: " + diagnostic.Cause(err), Cause: err}
}

// cargo builds the crate of the folder, without network: a plugin stands alone.
func (b *build) cargo() (string, error) {
	c, err := find("Rust", "CARGO", "cargo")
	if err != nil {
		return "", err
	}
	target := filepath.Join(b.objects, "cargo")
	b.step("compiling the crate")
	if err := b.run(c, b.folder, filepath.Join(b.folder, "Cargo.toml"), []string{"CARGO_TERM_COLOR=never"}, "build",
		"--release", "--offline", "--quiet", "--target-dir", target); err != nil {
		return "", err
	}
	linked := filepath.Join(target, "release", "lib"+stem(b.manifest.Name)+".so")
	if !exists(linked) {
		return "", &diagnostic.Error{Kind: ErrCompile, Path: filepath.Join(b.folder, "Cargo.toml"),
			Found:  "found that cargo made no " + filepath.Base(linked),
			Needed: fmt.Sprintf("a package called %s, whose [lib] has crate-type = [\"cdylib\"]", b.manifest.Name)}
	}
	return linked, nil
}

// cudaDefinitions is definitions for the variant of CUDA.
const cudaDefinitions = "plugin_cuda.h"

// cuda compiles the sources of the folder cuda, or says why not.
func (b *build) cuda() (linked, left string, err error) {
	folder := filepath.Join(b.folder, "cuda")
	if !exists(folder) {
		return "", "there is no folder cuda with its sources", nil
	}
	nvcc, err := find("CUDA", "NVCC", "nvcc")
	if err != nil && os.Getenv("NVCC") == "" {
		return "", "found no nvcc in the PATH; set NVCC", nil
	}
	if err != nil {
		return "", "", err
	}
	host, err := find("C++", "CXX", "c++", "g++", "clang++")
	if err != nil {
		return "", "", err
	}
	sources, err := b.sources(folder, ".cu")
	if err != nil || len(sources) == 0 {
		return "", "the folder cuda holds no .cu file", err
	}
	if err := b.define("cuda", cmp.Or(map[string]string{"arm64": "armv8-a"}[runtime.GOARCH], "x86-64")); err != nil {
		return "", "", err
	}
	b.harden(host)
	linked = filepath.Join(b.objects, "lib"+stem(b.manifest.Name)+"_cuda.so")
	args := []string{"-ccbin", host.path, "-std=c++17", "-O3", "-gencode", "arch=compute_80,code=sm_80", "-gencode",
		"arch=compute_90,code=[sm_90,compute_90]",
		"--expt-relaxed-constexpr", "-cudart", "static", "-cudadevrt", "none", "-shared", "-o", linked, "-I" + b.sdk,
		"-I" + filepath.Join(b.sdk, "kit"), "-I" + filepath.Join(b.sdk, cudaFolder),
		"-include", filepath.Join(b.objects, cudaDefinitions), "-Xcompiler",
		"-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden,-ffunction-sections,-fdata-sections"}
	for _, flag := range append(slices.Clone(b.hardCompile), b.linking(false)...) {
		args = append(args, "-Xcompiler", strings.ReplaceAll(flag, ",", `\,`))
	}
	// Toolkits from packages have their libraries where their own nvcc does not look.
	if toolkit, err := filepath.EvalSymlinks(nvcc.path); err == nil {
		for _, under := range []string{"lib64", "lib", "targets/x86_64-linux/lib"} {
			args = append(args, "-L"+filepath.Join(filepath.Dir(filepath.Dir(toolkit)), under))
		}
	}
	b.step("compiling for CUDA")
	return linked, "", b.run(nvcc, b.folder, folder, nil, append(args, sources...)...)
}
