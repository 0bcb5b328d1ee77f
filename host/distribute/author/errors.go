package author

import "errors"

// The kinds of error. A caller tells them apart with errors.Is.
var (
	// ErrProject: a plugin that cannot be begun as it was asked for.
	ErrProject = errors.New("no such project")
	// ErrCompiler: there is no compiler for what the plugin's folder holds.
	ErrCompiler = errors.New("no compiler")
	// ErrCompile: the compiler or the linker refused the sources.
	ErrCompile = errors.New("plugin does not compile")
)
