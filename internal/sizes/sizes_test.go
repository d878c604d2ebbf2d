package sizes

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "64KiB": 64 << 10, "64 kib": 64 << 10, "64k": 64 << 10, "1M": 1 << 20, "2MB": 2 << 20,
		"3g": 3 << 30, "7b": 7, "1.5M": 3 << 19, "4K": 4096, "4KiB": 4096,
	} {
		if n, err := Parse(text); err != nil || n != want {
			t.Errorf("%q: %d %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "-1", "4X", "K", "1,5M", "99999999999999999999", "9999999999G", "4 4"} {
		if n, err := Parse(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}
