package plugin

import (
	"fmt"
	"os"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/trust"
)

// UnverifiedVariable, set to 1, makes Open load libraries whose hash is not recorded.
const UnverifiedVariable = "GRAFT_PLUGIN_UNVERIFIED"

func acceptUnverified() bool { return os.Getenv(UnverifiedVariable) == "1" }

// requireTrust refuses a library whose hash is not recorded.
func (p *Plugin) requireTrust(t *trust.Record) error {
	if t == nil {
		var err error
		if t, err = trust.User(); err != nil {
			return err
		}
	}
	_, ok, err := t.Lookup(p.SHA256)
	if err != nil || ok {
		return err
	}
	return &diagnostic.Error{Kind: refusal.ErrVerification, Path: p.Path,
		Found:  fmt.Sprintf("found a library that has not been verified here (sha256 %s...)", p.SHA256[:12]),
		Needed: "one that graft has run apart from this program first",
		Fix:    fmt.Sprintf("run: graft plugin install %s (or, to use it where it is: graft plugin verify %s)", diagnostic.Quote(p.Folder), diagnostic.Quote(p.Folder)),
	}
}
