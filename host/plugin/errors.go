package plugin

import "errors"

// The kinds of refusal. A caller tells them apart with errors.Is; the command line turns ErrIncompatible
// into exit code 4 and ErrVerification into exit code 3.
var (
	// ErrManifest: plugin.yaml is missing or says something that it may not say.
	ErrManifest = errors.New("bad plugin manifest")
	// ErrIncompatible: a library that this host cannot load: another architecture, ABI version or
	// symbol, or a link that a plugin may not have.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrVerification: files that are not the recorded ones, or code that failed when it was run.
	ErrVerification = errors.New("plugin verification failed")
	// ErrArchive: an archive with entries that a plugin's archive may not have.
	ErrArchive = errors.New("bad plugin archive")
	// ErrNotFound: no such plugin where the host looks.
	ErrNotFound = errors.New("plugin not found")
	// ErrStore: the folder that keeps plugins cannot be read or written.
	ErrStore = errors.New("plugin store")
	// ErrKernel: a plugin's function returned an error or a result that it may not return.
	ErrKernel = errors.New("plugin call failed")
)
