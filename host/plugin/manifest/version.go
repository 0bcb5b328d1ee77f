package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// ABIVersion is a version of graft_plugin.h. Two sides work together when the majors are equal and the
// plugin's minor is not above the host's.
type ABIVersion struct {
	Major, Minor uint32
}

// String is "major.minor".
func (v ABIVersion) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// MarshalText is String, so that JSON shows "1.0".
func (v ABIVersion) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (v *ABIVersion) UnmarshalText(text []byte) error {
	parsed, err := ParseABIVersion(string(text))
	if err != nil {
		return err
	}
	*v = parsed
	return nil
}

// ParseABIVersion reads "major.minor".
func ParseABIVersion(s string) (ABIVersion, error) {
	major, minor, ok := strings.Cut(s, ".")
	if ok {
		a, errA := parsePlain(major)
		b, errB := parsePlain(minor)
		if errA == nil && errB == nil {
			return ABIVersion{Major: a, Minor: b}, nil
		}
	}
	return ABIVersion{}, fmt.Errorf("found ABI version %q, needed major.minor such as \"1.0\"", s)
}

// parsePlain takes digits without sign or leading zero.
func parsePlain(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("found %q, needed a decimal number", s)
	}
	return uint32(n), nil
}

// Accepts reports whether a host of version v loads a plugin built for p.
func (v ABIVersion) Accepts(p ABIVersion) bool { return p.Major == v.Major && p.Minor <= v.Minor }
