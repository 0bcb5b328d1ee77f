package ort

import (
	"maps"
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// Options are an OrtSessionOptions, which may be null.
type Options struct {
	library *Library
	native  uintptr
}

// Options are those at an address.
func (l *Library) Options(native uintptr) Options { return Options{l, native} }

// AddConfig sets session config entries in the order of their keys.
func (o Options) AddConfig(entries map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		k, err := cmem.CString(key)
		if err != nil {
			return err
		}
		v, err := cmem.CString(entries[key])
		if err != nil {
			return err
		}
		if err := o.library.Try("AddSessionConfigEntry", slot.AddSessionConfigEntry, o.native,
			uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(v))); err != nil {
			return err
		}
	}
	return nil
}

// Config reads one session config entry.
func (o Options) Config(key string) (value string, ok bool, err error) {
	if o.native == 0 {
		return "", false, nil
	}
	k, err := cmem.CString(key)
	if err != nil {
		return "", false, err
	}
	var has int32
	if err := o.library.Try("HasSessionConfigEntry", slot.HasSessionConfigEntry, o.native,
		uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(&has))); err != nil || has == 0 {
		return "", false, err
	}
	var size uintptr
	if err := o.library.Try("GetSessionConfigEntry", slot.GetSessionConfigEntry, o.native,
		uintptr(unsafe.Pointer(k)), 0, uintptr(unsafe.Pointer(&size))); err != nil {
		return "", false, err
	}
	buffer := make([]byte, size) // size counts the final zero byte
	if err := o.library.Try("GetSessionConfigEntry", slot.GetSessionConfigEntry, o.native,
		uintptr(unsafe.Pointer(k)), uintptr(unsafe.Pointer(unsafe.SliceData(buffer))),
		uintptr(unsafe.Pointer(&size))); err != nil {
		return "", false, err
	}
	return cmem.GoString(uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))), true, nil
}

// ConfigEntries reads all session config entries.
func (o Options) ConfigEntries() (map[string]string, error) {
	entries := map[string]string{}
	if o.native == 0 {
		return entries, nil
	}
	var pairs uintptr
	if err := o.library.Try("GetSessionOptionsConfigEntries", slot.GetSessionOptionsConfigEntries, o.native,
		uintptr(unsafe.Pointer(&pairs))); err != nil {
		return nil, err
	}
	defer o.library.Call(slot.ReleaseKeyValuePairs, pairs)
	var keys, values, n uintptr
	o.library.Call(slot.GetKeyValuePairs, pairs, uintptr(unsafe.Pointer(&keys)), uintptr(unsafe.Pointer(&values)),
		uintptr(unsafe.Pointer(&n)))
	for i := range int(n) {
		entries[cmem.GoString(cmem.LoadWord(keys, i))] = cmem.GoString(cmem.LoadWord(values, i))
	}
	return entries, nil
}

// Silent is a clone, to be released, with which a session writes no files; null for null.
func (o Options) Silent() (options uintptr, err error) {
	l := o.library
	if o.native == 0 {
		return 0, nil
	}
	if err := l.Try("CloneSessionOptions", slot.CloneSessionOptions, o.native,
		uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, err
	}
	none := new(byte)
	if err = l.Try("DisableProfiling", slot.DisableProfiling, options); err == nil {
		err = l.Try("SetOptimizedModelFilePath", slot.SetOptimizedModelFilePath, options, uintptr(unsafe.Pointer(none)))
	}
	if err != nil {
		l.Call(slot.ReleaseSessionOptions, options)
		return 0, err
	}
	return options, nil
}

// Pair looks a key up in OrtKeyValuePairs, which may be null.
func (l *Library) Pair(pairs uintptr, key string) string {
	if pairs == 0 {
		return ""
	}
	var keys, values, n uintptr
	l.Call(slot.GetKeyValuePairs, pairs, uintptr(unsafe.Pointer(&keys)), uintptr(unsafe.Pointer(&values)),
		uintptr(unsafe.Pointer(&n)))
	return cmem.Lookup(keys, values, n, key)
}
