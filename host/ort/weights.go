package ort

import (
	"fmt"
	"runtime"
	"unsafe"
)

// A Weight is an initializer of a model's main graph that a session takes from memory. In the model it has
// external data, of any location, and the same type and shape.
type Weight struct {
	Name    string
	Element ElementType
	Shape   []int64
	// Data is row-major, outside of Go's heap, and must not change until Release.
	Data []byte
	// InPlace lets operators read Data itself, as long as the session is there. It is for weights that
	// ONNX Runtime hands on to operators of the CPU and has no reason to look into: their content is not
	// there for its optimisations, which fail where they need it. Of all others it makes a copy.
	InPlace bool
	// Release is called once: when the session is released, or was made if it has a copy, or was not made.
	Release func()
}

// lent are the weights of a session that is being made, and what it needs of them afterwards.
type lent struct {
	weights []Weight
	values  []*Value // of weights in place: ONNX Runtime has addresses of OrtValues, too
}

// close releases everything.
func (w *lent) close() {
	closeAll(w.values)
	for _, x := range w.weights {
		x.Release()
	}
	*w = lent{}
}

// made makes a session with the weights, and a second time with copies of all where ONNX Runtime has looked into
// one that is in place.
func (w *lent) made(make func() error) error {
	err := make()
	again := false
	for i := range w.weights {
		again = again || err != nil && w.weights[i].InPlace
		w.weights[i].InPlace = w.weights[i].InPlace && err == nil
	}
	if again {
		closeAll(w.values)
		w.values = nil
		err = make()
	}
	if err != nil {
		w.close()
	}
	return err
}

// copied releases what ONNX Runtime has a copy of, now that it is made.
func (w *lent) copied() {
	var rest []Weight
	for _, x := range w.weights {
		if x.InPlace {
			rest = append(rest, x)
			continue
		}
		x.Release()
	}
	w.weights = rest
}

// give gives session options the weights.
func (w *lent) give(l *Library, options uintptr) error {
	var names []string
	var natives []uintptr
	var values []*Value
	defer func() { closeAll(values) }() // the options hold them too
	for _, x := range w.weights {
		v, err := l.NewTensorBytes(x.Element, x.Shape, x.Data)
		if err != nil {
			return fmt.Errorf("weight %s: %w", x.Name, err)
		}
		if !x.InPlace {
			values, names, natives = append(values, v), append(names, x.Name), append(natives, v.native)
			continue
		}
		w.values = append(w.values, v)
		name, err := cString(x.Name)
		if err != nil {
			return err
		}
		if err := l.try("AddInitializer", slotAddInitializer, options, uintptr(unsafe.Pointer(name)), v.native); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return nil
	}
	cnames, err := cStrings(names)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(cnames)
	return l.try("AddExternalInitializers", slotAddExternalInitializers, options, uintptr(unsafe.Pointer(&cnames[0])),
		uintptr(unsafe.Pointer(&natives[0])), uintptr(len(natives)))
}

// kept is what a session needs as long as it is there.
type kept struct {
	retained any
	weights  lent
}

// keep notes it for a session that was made.
func (h *hook) keep(session uintptr, retained any, weights lent) {
	if weights.copied(); retained != nil || len(weights.weights) > 0 {
		h.retained.Store(session, kept{retained, weights})
	}
}

// drop takes what a session needs from the list, before its address can name another session. What is returned is
// called when the session is no more.
func (h *hook) drop(session uintptr) (after func()) {
	v, ok := h.retained.LoadAndDelete(session)
	back := h.backs.take(session)
	return func() {
		back.close()
		if ok {
			k := v.(kept)
			k.weights.close()
			runtime.KeepAlive(k.retained)
		}
	}
}

// Release gives back what a patch holds of which no session is made.
func (p *Patch) Release() {
	for _, w := range p.Weights {
		w.Release()
	}
	p.Weights = nil
	p.Plain.release()
}
