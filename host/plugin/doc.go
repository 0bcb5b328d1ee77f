// Package plugin finds operator plugins, reads what they say about themselves, keeps them in a store
// and loads them.
//
// A plugin is a folder with one plugin.yaml and one shared library a variant (a device, an operating
// system, an architecture). The way of a plugin through this package:
//
//	Discover -> ReadManifest -> InspectLibrary -> Manifest.Choose -> Open -> Kernel
//	 folders     plugin.yaml      the ELF file      one variant      dlopen   direct calls
//
// Nothing before Open runs a line of the plugin's code: the manifest is text, and what the library
// needs stands in an ELF note. The code runs first in a child process (package worker), when a store
// installs or verifies it; Open then takes only files whose hash that run recorded.
package plugin
