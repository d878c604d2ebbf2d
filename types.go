package mpi

import (
	"errors"
	"fmt"
	"reflect"
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
	t := reflect.TypeFor[T]()
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
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return nil
	case reflect.Array:
		return checkType(t.Elem(), path+"[…]")
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if err := checkType(f.Type, path+"."+f.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Kind() == reflect.UnsafePointer {
		return fmt.Errorf("%s is an unsafe.Pointer, which means nothing to another process; %s", path, advice)
	}
	if path != t.String() {
		path += " is a " + t.String() + ", which"
	}
	return fmt.Errorf("%s holds a pointer and means nothing to another process; %s", path, advice)
}

const advice = "send numbers, arrays and structs of them, or use SendObject"

var errNotMultiple = errors.New("not a whole number of elements")
