package topology

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Filter is which devices and ports the user wants. The zero Filter wants all.
type Filter struct {
	with, without []choice
}

// choice is one element of the list.
type choice struct {
	device string // may have * and ?
	port   int    // 0: all
}

// longestName is the kernel's limit (IB_DEVICE_NAME_MAX, with the zero at its end).
const longestName = 63

// ParseFilter reads a list such as mlx5_0:1,mlx5_1,!mlx5_2: devices, each with a port or for all of its ports; ! before
// one excludes it, wherever it stands. A list that only excludes wants all others, and so does an empty one.
func ParseFilter(text string) (Filter, error) {
	var f Filter
	if strings.TrimSpace(text) == "" {
		return f, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		name, not := strings.CutPrefix(part, "!")
		c, err := parseChoice(strings.TrimSpace(name))
		if err != nil {
			return Filter{}, fmt.Errorf("%q in the list of RDMA devices %q: %w (example: mlx5_0:1,mlx5_1,!mlx5_2)",
				clean(part), clean(text), err)
		}
		if not {
			f.without = append(f.without, c)
		} else {
			f.with = append(f.with, c)
		}
	}
	return f, nil
}

func parseChoice(s string) (c choice, err error) {
	name, port, hasPort := strings.Cut(s, ":")
	switch {
	case s == "":
		return c, fmt.Errorf("an element is empty: take out the comma, or name a device")
	case name == "":
		return c, fmt.Errorf("a device's name is missing")
	case len(name) > longestName:
		return c, fmt.Errorf("a device's name has at most %d characters", longestName)
	case strings.Trim(name, nameCharacters) != "":
		return c, fmt.Errorf("a device's name has letters, digits and _-. only, and * or ? for any of them")
	}
	c.device = name
	if hasPort {
		c.port, err = strconv.Atoi(port)
		if err != nil || c.port < 1 || c.port > 255 || strconv.Itoa(c.port) != port {
			return c, fmt.Errorf("the port behind the colon is a number from 1 to 255")
		}
	}
	return c, nil
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.*?"

func (c choice) match(device string, port int) bool {
	ok, err := path.Match(c.device, device)
	return err == nil && ok && (c.port == 0 || c.port == port)
}

// Wanted are the elements that name something, each as a filter of its own.
func (f Filter) Wanted() (all []Filter) {
	for _, c := range f.with {
		all = append(all, Filter{with: []choice{c}})
	}
	return all
}

// Names reports whether the user wants some port of a device.
func (f Filter) Names(device string) bool {
	for _, c := range f.with {
		if ok, err := path.Match(c.device, device); err == nil && ok {
			return true
		}
	}
	return len(f.with) == 0
}

// String is the list, without what it excludes.
func (f Filter) String() string {
	var all []string
	for _, c := range f.with {
		s := c.device
		if c.port > 0 {
			s += ":" + strconv.Itoa(c.port)
		}
		all = append(all, s)
	}
	return strings.Join(all, ",")
}

// Match reports whether the user wants a port of a device.
func (f Filter) Match(device string, port int) bool {
	for _, c := range f.without {
		if c.match(device, port) {
			return false
		}
	}
	for _, c := range f.with {
		if c.match(device, port) {
			return true
		}
	}
	return len(f.with) == 0
}
