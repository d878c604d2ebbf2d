package settings

import (
	"reflect"
	"strings"
)

// Setting is what a field of Values says of its variable. The tags of Values explain the fields.
type Setting struct {
	Name, Default, Min, Max, Of, Like string

	Field   string   // of Values
	OneOf   []string // nil: any value of the type
	Meaning string
}

// Table is the settings in the order of Values.
var Table = table()

func table() (all []Setting) {
	for i := range reflect.TypeFor[Values]().NumField() {
		f := reflect.TypeFor[Values]().Field(i)
		s := Setting{Name: f.Tag.Get("env"), Default: f.Tag.Get("default"), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
			Of: f.Tag.Get("of"), Like: f.Tag.Get("like"), Field: f.Name, Meaning: meanings[f.Name]}
		if values := f.Tag.Get("oneof"); values != "" {
			s.OneOf = strings.Split(values, ",")
		}
		all = append(all, s)
	}
	return all
}

// Internal reports whether gorun sets the variable for its ranks; a user should not.
func (s Setting) Internal() bool { return s.Of == "job" }

// Secret reports whether no program may print the value.
func (s Setting) Secret() bool { return s.Name == "GORUN_KEY" }

// Long is the meaning and the range.
func (s Setting) Long() string {
	switch {
	case s.OneOf != nil:
		return s.Meaning + " One of " + strings.Join(s.OneOf, ", ") + "."
	case s.Min != "" && s.Max != "":
		return s.Meaning + " At least " + s.Min + ", at most " + s.Max + "."
	case s.Max != "":
		return s.Meaning + " At most " + s.Max + "."
	case s.Min != "":
		return s.Meaning + " At least " + s.Min + "."
	}
	return s.Meaning
}

// Find returns the setting of a variable.
func Find(name string) (Setting, bool) {
	for _, s := range Table {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}
