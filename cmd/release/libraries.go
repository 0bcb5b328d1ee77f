package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// allowed are the libraries that every system with glibc has.
var allowed = regexp.MustCompile(
	`^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux-x86-64\.so\.2|ld-linux-aarch64\.so\.1)$`)

// checkLibraries refuses libraries that would not load where glibc is as old as a platform says.
func (r *release) checkLibraries() error {
	for _, p := range r.platforms {
		list, err := filepath.Glob(filepath.Join(r.libraries, p.machine, "plugins", "*", "*.so"))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("%s: found no plugin, needed what make release-libraries builds",
				filepath.Join(r.libraries, p.machine))
		}
		if own := r.library(p); own != "" {
			list = append(list, own)
		}
		for _, path := range list {
			if err := portable(path, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// machines are the processors as ELF files name them.
var machines = map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}

// portable checks what a library needs of a system.
func portable(path string, p platform) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != machines[p.machine] {
		return fmt.Errorf("%s: found a library for %v, needed one for %s", path, f.Machine, p.machine)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range needed {
		if !allowed.MatchString(name) {
			return fmt.Errorf("%s: found that it needs %s, needed nothing but glibc", path, name)
		}
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range symbols {
		version, glibc := strings.CutPrefix(s.Version, "GLIBC_")
		if glibc && newer(version, p.maximum) {
			return fmt.Errorf("%s: found that it needs %s of glibc %s, needed at most %s", path, s.Name, version, p.maximum)
		}
	}
	return nil
}

// newer compares versions, as numbers with points between.
func newer(a, b string) bool {
	numbers := func(text string) []int {
		var list []int
		for _, part := range strings.Split(text, ".") {
			n, _ := strconv.Atoi(part)
			list = append(list, n)
		}
		return list
	}
	return slices.Compare(numbers(a), numbers(b)) > 0
}

// readPlugins are the files of a platform's plugins, by their paths below the folder of plugins.
func (r *release) readPlugins(p platform) (map[string][]byte, error) {
	folder := filepath.Join(r.libraries, p.machine, "plugins")
	files := map[string][]byte{}
	for _, pattern := range []string{"*/*.so", "*/plugin.yaml"} {
		list, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range list {
			name, err := filepath.Rel(folder, path)
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(name, "_cuda.so") {
				continue // ten times the size, for a machine that few have: make cuda builds these
			}
			if files[name], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}
