package harness

import (
	"fmt"
	"strings"
)

// Type is what messages are made of, as -T has it; "": bytes.
type Type string

const (
	Char  Type = ""
	Int   Type = "mpi_int"
	Float Type = "mpi_float"
	every Type = "all"

	// ElementSize is the number of bytes of an Int and of a Float.
	ElementSize = 4
)

// Name returns MPI's name of the type.
func (t Type) Name() string {
	if t == Char {
		return "MPI_CHAR"
	}
	return strings.ToUpper(string(t))
}

func parseType(text string, o *Options) error {
	switch t := Type(strings.ToLower(text)); t {
	case "mpi_char":
		o.Type = Char
	case Int, Float, every:
		o.Type = t
	default:
		return fmt.Errorf("wanted all, mpi_char, mpi_int or mpi_float, got %q", text)
	}
	return nil
}

// Each returns the options for each type that they ask for. Sizes are whole numbers of elements.
func (o Options) Each() (all []Options) {
	types := []Type{o.Type}
	if o.Type == every {
		types = []Type{Char, Int, Float}
	}
	for _, t := range types {
		one := o
		if one.Type = t; t != Char {
			one.MinSize = max((one.MinSize+ElementSize-1)/ElementSize, 1) * ElementSize
			one.MaxSize = max(one.MaxSize, one.MinSize)
		}
		all = append(all, one)
	}
	return all
}
