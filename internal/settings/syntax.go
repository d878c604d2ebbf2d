package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/sizes"
)

// read stores text in the field of v. Without text the field keeps its zero value.
func (s Setting) read(v *Values, text string) error {
	field := reflect.ValueOf(v).Elem().FieldByName(s.Field)
	auto := s.Default == "auto" && s.OneOf == nil
	if text == "" {
		return nil
	}
	if auto && strings.EqualFold(text, "auto") {
		if d, ok := field.Addr().Interface().(*time.Duration); ok {
			*d = Auto
		}
		return nil
	}
	err := s.parse(field.Addr().Interface(), text)
	if err == nil {
		err = s.checkRange(field)
	}
	if err != nil && auto {
		return fmt.Errorf("%w, or auto", err)
	}
	return err
}

// parse is the syntax of each type.
func (s Setting) parse(field any, text string) (err error) {
	switch p := field.(type) {
	case *[]string:
		*p, err = parseNames(text)
	case *int64:
		*p, err = sizes.Parse(text)
		if err == nil && *p == 0 && s.Default == "auto" { // 0 is how a field says auto
			err = errors.New("must be larger than 0; use for example 64KiB")
		}
	case *time.Duration:
		*p, err = parseDuration(text)
	case *int:
		*p, err = s.parseNumber(text)
	case *bool:
		*p, err = parseSwitch(text)
	case *string:
		*p, err = s.parseText(text)
	}
	return err
}

// checkRange checks that the limits have the syntax of the values.
func (s Setting) checkRange(field reflect.Value) error {
	limit := reflect.New(field.Type())
	if s.Min != "" && s.parse(limit.Interface(), s.Min) == nil && field.Int() < limit.Elem().Int() {
		return fmt.Errorf("must be at least %s; %s", s.Min, s.example())
	}
	if s.Max != "" && s.parse(limit.Interface(), s.Max) == nil && field.Int() > limit.Elem().Int() {
		return fmt.Errorf("must be at most %s; %s", s.Max, s.example())
	}
	return nil
}

func (s Setting) example() string {
	if s.Internal() {
		return "gorun sets this variable itself, do not set it by hand"
	}
	return "use for example " + s.Default
}

func parseNames(text string) ([]string, error) {
	var list []string
	for _, name := range strings.Split(text, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" || strings.ContainsAny(name, " \t") {
			return nil, errors.New("not a list; use names separated by commas, for example shm,tcp")
		}
		if slices.Contains(list, name) {
			return nil, fmt.Errorf("%s is named twice; use for example shm,tcp", name)
		}
		list = append(list, name)
	}
	return list, nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("not a duration; use for example 50us, 250ms or 60s")
	}
	return d, nil
}

func (s Setting) parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("not a number; %s", s.example())
	}
	return n, nil
}

func parseSwitch(text string) (bool, error) {
	if text != "0" && text != "1" {
		return false, errors.New("neither on nor off; use 0 or 1")
	}
	return text == "1", nil
}

func (s Setting) parseText(text string) (string, error) {
	if s.OneOf == nil {
		return text, nil
	}
	text = strings.ToLower(text)
	if !slices.Contains(s.OneOf, text) {
		return "", fmt.Errorf("must be one of %s", strings.Join(s.OneOf, ", "))
	}
	return text, nil
}
