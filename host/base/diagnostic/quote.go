package diagnostic

// Quote makes a path fit for pasting into a shell.
func Quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '/' || c == '.' || c == '-' ||
			c == '_' || c == '+' || c == '@' || c == ':' || c == ','
	}
	for _, c := range s {
		if !plain(c) {
			quoted := "'"
			for _, c := range s {
				if c == '\'' {
					quoted += `'\''`
				} else {
					quoted += string(c)
				}
			}
			return quoted + "'"
		}
	}
	return s
}
