// Package must holds tests to what calls give: no error, so that a test goes on with the value; an error that says what
// is wanted of it; a value that is the one wanted.
package must

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Succeed ends the test where there is an error. The context, if there is one, stands before the error.
func Succeed(t testing.TB, err error, context ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s%v", which(context), err)
	}
}

// Value is what a call gave, of which the test that is named next ends where there is an error:
// must.Value(os.ReadFile(path))(t).
func Value[T any](value T, err error) func(t testing.TB, context ...any) T {
	return func(t testing.TB, context ...any) T {
		t.Helper()
		Succeed(t, err, context...)
		return value
	}
}

// Fail marks the test as failed, which goes on, where an error lacks one of the parts: texts that it has to hold, and
// errors that it has to be (errors.Is); nil is no error.
func Fail(t testing.TB, err error, parts ...any) {
	t.Helper()
	if problem := lacks(err, parts); problem != "" {
		t.Error(problem)
	}
}

// FailExactly is Fail where an error's whole text is wanted.
func FailExactly(t testing.TB, err error, text string, kinds ...error) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("found error\n%v\nneeded\n%s", err, text)
	}
	for _, kind := range kinds {
		Fail(t, err, kind)
	}
}

// Error is the error of a call that gives a value too: must.Fail(t, must.Error(Parse("x")), "found x").
func Error[T any](_ T, err error) error { return err }

// Equal marks the test as failed, which goes on, where a value is another than is wanted. No slice (nil) and an empty
// one are equal. The context, if there is one, says which of several it is.
func Equal[T any](t testing.TB, got, want T, context ...any) {
	if g, w := reflect.ValueOf(got), reflect.ValueOf(want); reflect.DeepEqual(got, want) ||
		g.Kind() == reflect.Slice && g.Len()+w.Len() == 0 {
		return
	}
	t.Helper()
	t.Errorf("%sfound %s, needed %s", which(context), written(got), written(want))
}

// Empty is Equal where nothing is wanted in a slice.
func Empty[T any](t testing.TB, list []T, context ...any) {
	t.Helper()
	Equal(t, list, nil, context...)
}

// which is the beginning of what is said with a context.
func which(context []any) string {
	if len(context) == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(context...), "\n") + ": "
}

// written is a value as it is shown: texts in quotes, those of many lines as they are.
func written(v any) string {
	switch r := reflect.ValueOf(v); {
	case r.Kind() == reflect.String && strings.Contains(r.String(), "\n"):
		return "\n" + r.String()
	case r.Kind() == reflect.String, r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.String:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}

// lacks says which part an error has not.
func lacks(err error, parts []any) string {
	for _, part := range parts {
		switch part := part.(type) {
		case nil:
			if err != nil {
				return fmt.Sprintf("found error\n%v\nneeded none", err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Sprintf("found error\n%v\nneeded one that says\n%s", err, part)
			}
		case error:
			if !errors.Is(err, part) {
				return fmt.Sprintf("found error\n%v\nneeded one that is\n%v", err, part)
			}
		default:
			return fmt.Sprintf("a test asks for a %T in an error, needed a string or an error", part)
		}
	}
	return ""
}
