package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// VariantFor returns the library for a device on a platform. There is at most one: instruction sets are
// chosen inside it. Without one the error is of kind ErrIncompatible and lists what there is.
func (m *Manifest) VariantFor(device string, platform Platform) (*Variant, error) {
	var have []string
	for i := range m.Variants {
		v := &m.Variants[i]
		if v.Device == device && v.OS == platform.OS && v.Arch == platform.Arch {
			return v, nil
		}
		have = append(have, v.String())
	}
	return nil, &diagnostic.Error{
		Kind: refusal.ErrIncompatible, Path: m.path,
		Found:  fmt.Sprintf("found variants %s of %s", strings.Join(have, ", "), m.Name),
		Needed: device + " on " + platform.String(),
		Fix:    "install a release of the plugin for this platform",
	}
}

// ForPlatform lists the variants that could run on a platform, whatever the device.
func (m *Manifest) ForPlatform(platform Platform) []*Variant {
	var out []*Variant
	for i := range m.Variants {
		if v := &m.Variants[i]; v.OS == platform.OS && v.Arch == platform.Arch {
			out = append(out, v)
		}
	}
	return out
}

// Absent reports that a plugin's folder has no file of the variant.
func Absent(folder string, v *Variant) bool {
	_, err := os.Stat(filepath.Join(folder, v.File))
	return errors.Is(err, fs.ErrNotExist)
}

// Present lists the variants for a platform whose files are in the plugin's folder.
func (m *Manifest) Present(folder string, platform Platform) []*Variant {
	return slices.DeleteFunc(m.ForPlatform(platform), func(v *Variant) bool { return Absent(folder, v) })
}

// Has reports whether a folder of the plugin has a library of this machine's for a device.
func (m *Manifest) Has(folder, device string) bool {
	return slices.ContainsFunc(m.Present(folder, ThisPlatform), func(v *Variant) bool { return v.Device == device })
}

// String is "device on os/arch".
func (v *Variant) String() string { return v.Device + " on " + v.OS + "/" + v.Arch }
