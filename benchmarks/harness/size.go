package harness

import "strconv"

// Size is a flag with a number of bytes such as 4096, 4K or 4KiB: flag.Var(&size, ...).
type Size int

// Set implements flag.Value.
func (s *Size) Set(text string) error {
	n, err := ParseSize(text)
	if err == nil {
		*s = Size(n)
	}
	return err
}

// String implements flag.Value.
func (s *Size) String() string { return strconv.Itoa(int(*s)) }
