package worker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// ErrNoExecutable: no executable that can be the child was found.
var ErrNoExecutable = errors.New("no graft executable found")

// executable returns the path of a program that can be a child: this one when it called Main, else graft
// beside this one or on PATH. subject is the path of errors.
func executable(subject string) (string, error) {
	self, err := os.Executable()
	if err == nil && hosted.Load() {
		return self, nil
	}
	folder := "this program's folder"
	if err == nil {
		folder = filepath.Dir(self)
		beside := filepath.Join(folder, "graft")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	if path, err := exec.LookPath("graft"); err == nil && filepath.IsAbs(path) {
		return path, nil
	}
	return "", &diagnostic.Error{Kind: ErrNoExecutable, Path: subject,
		Found:  "found no graft executable in " + folder + " and on PATH",
		Needed: "one to run a plugin apart from this program",
		Fix:    "install it: go install github.com/opgraft/graft/cmd/graft@latest"}
}
