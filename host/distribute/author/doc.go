// Package author makes plugins: it writes new ones from templates, compiles their libraries as the CMake module does,
// and writes out what they are compiled with. Of the machine it needs a compiler and nothing else.
package author
