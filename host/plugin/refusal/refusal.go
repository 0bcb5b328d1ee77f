// Package refusal holds the kinds of refusal of a plugin.
package refusal

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
)

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
	// ErrUnverified: a library that never ran apart from a program here, or was rebuilt since. It is also of kind
	// ErrVerification.
	ErrUnverified = fmt.Errorf("%w: not verified here", ErrVerification)
	// ErrLock: a plugin that is not what a lock file says. It is also of kind ErrVerification.
	ErrLock = fmt.Errorf("%w: not what the lock says", ErrVerification)
	// ErrLockFile: a lock file that cannot be read, or says what it may not say.
	ErrLockFile = errors.New("bad lock file")
	// ErrArchive: an archive with entries that a plugin's archive may not have.
	ErrArchive = errors.New("bad plugin archive")
	// ErrNotFound: no such plugin where the host looks.
	ErrNotFound = errors.New("plugin not found")
	// ErrStore: the folder of installed plugins cannot be read or written.
	ErrStore = errors.New("plugin store")
	// ErrKernel: a plugin's function returned an error or a result that it may not return.
	ErrKernel = errors.New("plugin call failed")
	// ErrFold: a plugin's fold function says that the constants do not qualify. Nothing is wrong.
	ErrFold = errors.New("refused by the plugin")
	// ErrDevice: a variant for a device that this machine does not have, or whose driver is too old. It is
	// also of kind ErrIncompatible. Other variants of the plugin may run here.
	ErrDevice = fmt.Errorf("%w: no device for it", ErrIncompatible)
)

// Incompatible is an error of kind ErrIncompatible.
func Incompatible(path, found, needed, fix string) *diagnostic.Error {
	return &diagnostic.Error{Kind: ErrIncompatible, Path: path, Found: "found " + found, Needed: needed, Fix: fix}
}

// Locking words an error of a lock of the store; that of a context stays as it is.
func Locking(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return Store(path, "cannot lock", err)
}

// Store words an error of the file system that holds the store.
func Store(path, what string, err error) error {
	return &diagnostic.Error{Kind: ErrStore, Path: path, Found: what + ": " + diagnostic.Cause(err),
		Fix: "make the folder writable, or set XDG_DATA_HOME to one that is", Cause: err}
}
