package mpi

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// typeChecked caches the answer for types that are not in the switch of fixedType: reflect.Type -> error, or nil.
var typeChecked sync.Map

// fixedType reports why a T cannot be sent; nil: it has a fixed size and no pointers.
func fixedType[T any]() error {
	switch any((*T)(nil)).(type) {
	case *byte, *int8, *int16, *uint16, *int32, *uint32, *int64, *uint64, *int, *uint,
		*float32, *float64, *complex64, *complex128, *bool, *uintptr:
		return nil
	}
	return fixedTypeOf(reflect.TypeFor[T]())
}

// fixedTypeOf is fixedType of any type.
func fixedTypeOf(t reflect.Type) error {
	if v, ok := typeChecked.Load(t); ok {
		err, _ := v.(error)
		return err
	}
	err := checkType(t, t.String())
	if err == nil {
		typeChecked.Store(t, nil)
	} else {
		typeChecked.Store(t, err)
	}
	return err
}

// checkType finds the first part of t that has no fixed size; path names it.
func checkType(t reflect.Type, path string) error {
	switch k := t.Kind(); {
	case isNumber(k):
		return nil
	case k == reflect.Array:
		return checkType(t.Elem(), path+"[…]")
	case k == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if err := checkType(f.Type, path+"."+f.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Kind() == reflect.UnsafePointer {
		return &pointerError{path + " is an unsafe.Pointer, which means nothing to another process"}
	}
	if path != t.String() {
		path += " is a " + t.String() + ", which"
	}
	return &pointerError{path + " holds a pointer and means nothing to another process"}
}

// pointerError is the error of a type that has no fixed size.
type pointerError struct{ what string }

func (e *pointerError) Error() string { return e.what + "; " + advice }

// kindSet is the kinds of the numbers that a type consists of: a bit for each reflect.Kind.
type kindSet uint32

// justBytes are the numbers of bytes, which a layout may name of any memory, and which are memory of anything.
const justBytes = kindSet(1) << reflect.Uint8

// contents is what a value of a type consists of.
type contents struct {
	numbers  kindSet
	pointers bool // strings, slices, maps … among them
}

// typeContents caches those of arrays and structs: reflect.Type -> contents.
var typeContents sync.Map

// contentsOf is what a t consists of.
func contentsOf(t reflect.Type) contents {
	switch k := t.Kind(); {
	case isNumber(k):
		return contents{numbers: 1 << k}
	case k != reflect.Array && k != reflect.Struct:
		return contents{pointers: true}
	}
	if known, ok := typeContents.Load(t); ok {
		return known.(contents)
	}
	var c contents
	if t.Kind() == reflect.Array {
		if t.Len() > 0 {
			c = contentsOf(t.Elem())
		}
	} else {
		for i := range t.NumField() {
			f := contentsOf(t.Field(i).Type)
			c.numbers |= f.numbers
			c.pointers = c.pointers || f.pointers
		}
	}
	typeContents.Store(t, c)
	return c
}

func isNumber(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// String names them.
func (n kindSet) String() string {
	var names []string
	for k := reflect.Bool; k <= reflect.Complex128; k++ {
		if n&(1<<k) != 0 {
			names = append(names, k.String())
		}
	}
	return strings.Join(names, ", ")
}

// holdsNumbers reports why nothing of a T can be sent: it is pointers alone.
func holdsNumbers[T any]() error { return holdsNumbersOf(reflect.TypeFor[T]()) }

func holdsNumbersOf(t reflect.Type) error {
	if c := contentsOf(t); !c.pointers || c.numbers != 0 {
		return nil
	}
	return fixedTypeOf(t)
}

// pointerWithin is the path of a part of t that has no fixed size and lies in its bytes from lo up to hi; "": there is
// none.
func pointerWithin(t reflect.Type, path string, lo, hi uintptr) string {
	if lo >= hi || !contentsOf(t).pointers {
		return ""
	}
	switch t.Kind() {
	case reflect.Array:
		size := t.Elem().Size()
		if size == 0 {
			return ""
		}
		for i := lo / size; i*size < hi; i++ { // the second one that is not the last is covered whole
			from := i * size
			in := pointerWithin(t.Elem(), fmt.Sprintf("%s[%d]", path, i), max(lo, from)-from, min(hi-from, size))
			if in != "" {
				return in
			}
		}
		return ""
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			from, to := max(lo, f.Offset), min(hi, f.Offset+f.Type.Size())
			if from >= to {
				continue
			}
			if in := pointerWithin(f.Type, path+"."+f.Name, from-f.Offset, to-f.Offset); in != "" {
				return in
			}
		}
		return ""
	}
	return path
}

const advice = "send numbers, arrays and structs of them, or use SendObject"

var errNotMultiple = errors.New("not a whole number of elements")
