package archive

import "io"

// PackFolder writes a folder of archives, as Pack writes that of a plugin: its files lie below a folder of this name.
func PackFolder(w io.Writer, folder, top string) error { return pack(w, folder, top) }
