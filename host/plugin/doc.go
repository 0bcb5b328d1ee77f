// Package plugin loads operator plugins and calls their kernels directly, without ONNX Runtime.
//
// A plugin is a folder with one plugin.yaml and one shared library a variant (a device, an operating
// system, an architecture). Its way from there to a kernel:
//
//	discovery.Find -> manifest.Read -> library.Read -> plugin.Open -> Kernel
//	 folders           plugin.yaml      the ELF file     dlopen        direct calls
//
// Nothing before Open runs a line of the plugin's code: the manifest is text, and what the library
// needs stands in an ELF note. The code runs first in a child process (package verification), when a
// store installs or verifies it; Open then takes only folders whose content that run recorded, and loads the
// bytes that it hashed.
package plugin
