package session

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/arena"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Weight is an initializer of a model's main graph that a session takes from memory. In the model it has
// external data, of any location, and the same type and shape.
type Weight struct {
	Name    string
	Element ort.ElementType
	Shape   []int64
	// Data is row-major, outside of Go's heap, and must not change until Release.
	Data []byte
	// InPlace lets operators read Data itself, as long as the session is there. It is for weights that
	// ONNX Runtime hands on to operators of the CPU and has no reason to look into: their content is not
	// there for its optimisations, which fail where they need it. Of all others it makes a copy.
	InPlace bool
	// Packed says of a weight in place that ONNX Runtime's matrix products read it and no other operator does: they lay
	// it out anew, and sessions of the same weights share what they get. Sessions that the program gets have that; to
	// others it is a weight that is not in place.
	Packed bool
	// Release is called once: when the session is released, or was made if it has a copy or laid it out anew, or was not
	// made.
	Release func()
}

// lent are the weights of a session that is being made, and what it needs of them afterwards.
type lent struct {
	weights []Weight
	values  []placed     // of weights in place: ONNX Runtime has addresses of OrtValues, too
	panels  *panels      // of packed weights, nil for none
	arena   *arena.Arena // that it shares, nil for one of its own
}

// placed is the OrtValue of the weight with a number.
type placed struct {
	value  *ort.Value
	weight int
}

// withdraw takes back what was given.
func (w *lent) withdraw() {
	for _, v := range w.values {
		v.value.Close()
	}
	w.panels.leave()
	w.arena.Leave()
	w.values, w.panels, w.arena = nil, nil, nil
}

// close releases everything.
func (w *lent) close() {
	w.withdraw()
	for _, x := range w.weights {
		x.Release()
	}
	*w = lent{}
}

// made makes a session with the weights, and again with copies of more of them where ONNX Runtime has looked into one
// that is in place: of those that it lays out anew, then of all.
func (w *lent) made(make func() error) error {
	err := make()
	for err != nil && !canceled(err) && (w.copyInstead(func(x Weight) bool { return x.Packed }) ||
		w.copyInstead(func(Weight) bool { return true })) {
		w.withdraw()
		err = make()
	}
	if err != nil {
		w.close()
	}
	return err
}

// canceled reports a load that somebody ended.
func canceled(err error) bool {
	var e *ort.Error
	return errors.As(err, &e) && e.Code == ort.CodeLoadCanceled
}

// copyInstead has ONNX Runtime copy weights that are in place, and reports whether there was one.
func (w *lent) copyInstead(which func(Weight) bool) (any bool) {
	for i, x := range w.weights {
		if x.InPlace && which(x) {
			w.weights[i].InPlace, any = false, true
		}
	}
	return any
}

// copied releases what ONNX Runtime does not read any more, now that the session is made: what it has a copy of, and
// what it laid out anew.
func (w *lent) copied(l *ort.Library) {
	owned := ownersOf.Of(l)
	done := make([]bool, len(w.weights))
	for i, x := range w.weights {
		done[i] = !x.InPlace
	}
	for _, v := range w.values {
		if i := v.weight; w.weights[i].Packed && owned.sole(v.value) {
			done[i] = true
		}
	}
	var rest []Weight
	for i, x := range w.weights {
		if done[i] {
			x.Release()
		} else {
			rest = append(rest, x)
		}
	}
	w.weights = rest
}

// give gives session options the weights.
func (w *lent) give(l *ort.Library, options uintptr) error {
	var names []string
	var natives []uintptr
	var values []*ort.Value
	defer func() { ort.CloseAll(values) }() // the options hold them too
	for i, x := range w.weights {
		v, err := l.NewTensorBytes(x.Element, x.Shape, x.Data)
		if err != nil {
			return fmt.Errorf("weight %s: %w", x.Name, err)
		}
		if !x.InPlace {
			values, names, natives = append(values, v), append(names, x.Name), append(natives, v.Native())
			continue
		}
		w.values = append(w.values, placed{v, i})
		name, err := cmem.CString(x.Name)
		if err != nil {
			return err
		}
		if err := l.Try("AddInitializer", slot.AddInitializer, options, uintptr(unsafe.Pointer(name)),
			v.Native()); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return nil
	}
	cnames, err := cmem.CStrings(names)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(cnames)
	return l.Try("AddExternalInitializers", slot.AddExternalInitializers, options, uintptr(unsafe.Pointer(&cnames[0])),
		uintptr(unsafe.Pointer(&natives[0])), uintptr(len(natives)))
}

// share finds the panels of packed weights for a session of a program.
func (w *lent) share(l *ort.Library) error {
	packed := func(x Weight) bool { return x.Packed }
	if !ownersOf.Of(l).told() { // the weights would stay beside their panels
		w.copyInstead(packed)
	}
	if !slices.ContainsFunc(w.weights, func(x Weight) bool { return x.InPlace && x.Packed }) {
		return nil
	}
	var err error
	w.panels, err = panelsOf.Of(l).enter(w.weights)
	return err
}

// kept is what a session needs as long as it is there.
type kept struct {
	retained any
	weights  lent
	large    bool // had weights of more than trimAbove bytes
}

// keeping is that by the address of an OrtSession.
type keeping struct {
	library  *ort.Library
	sessions sync.Map // -> kept
}

// keptOf has those of each library.
var keptOf = ort.NewEach(func(l *ort.Library) *keeping { return &keeping{library: l} })

// keep notes it for a session that was made.
func (k *keeping) keep(session uintptr, retained any, weights lent) {
	size := 0
	for _, w := range weights.weights {
		size += len(w.Data)
	}
	weights.copied(k.library)
	if size > trimAbove && weights.panels.shared() {
		trim() // what laying out panels that were there already leaves in heaps
	}
	if large := size > trimAbove; large || weights.arena != nil || retained != nil || len(weights.weights) > 0 ||
		len(weights.values) > 0 {
		k.sessions.Store(session, kept{retained, weights, large})
	}
}

// Drop takes what a session needs from the list, before its address can name another session. What is returned is
// called when the session is no more.
func Drop(l *ort.Library, session uintptr) (after func()) {
	v, ok := keptOf.Of(l).sessions.LoadAndDelete(session)
	return func() {
		if !ok {
			return
		}
		k := v.(kept)
		k.weights.close()
		runtime.KeepAlive(k.retained)
		if k.large {
			trim()
		}
	}
}

// Release gives back what a patch holds of which no session is made.
func (p *Patch) Release() {
	for _, w := range p.Weights {
		w.Release()
	}
	p.Weights = nil
	p.Plain.Close()
}
