package topology

import (
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		text     string
		yes, not string // device:port, separated by spaces
	}{
		{"", "mlx5_0:1 rxe0:255", ""},
		{"mlx5_0:1,mlx5_1,!mlx5_2", "mlx5_0:1 mlx5_1:1 mlx5_1:2", "mlx5_0:2 mlx5_2:1 rxe0:1"},
		{" mlx5_0:1 , ! mlx5_1 ", "mlx5_0:1", "mlx5_0:2 mlx5_1:1"},
		{"!mlx5_2", "mlx5_0:1 mlx5_20:1", "mlx5_2:1 mlx5_2:2"},
		{"!mlx5_2:2", "mlx5_2:1", "mlx5_2:2"},
		{"!mlx5_0,mlx5_*", "mlx5_1:1 mlx5_bond_0:1", "mlx5_0:1 rxe0:1"},
		{"mlx5_?:1", "mlx5_0:1", "mlx5_10:1 mlx5_0:2"},
		{"*", "a:1", ""},
	} {
		f, err := ParseFilter(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		for want, list := range map[bool]string{true: c.yes, false: c.not} {
			for _, at := range strings.Fields(list) {
				x, err := parseChoice(at)
				if err != nil {
					t.Fatal(err)
				}
				if got := f.Match(x.device, x.port); got != want {
					t.Errorf("%q: %s is wanted: %v, want %v", c.text, at, got, want)
				}
			}
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		",":                               "empty",
		"mlx5_0,":                         "empty",
		"!":                               "empty",
		"!!mlx5_0":                        "letters, digits",
		":1":                              "name is missing",
		"mlx5_0:0":                        "from 1 to 255",
		"mlx5_0:256":                      "from 1 to 255",
		"mlx5_0:-1":                       "from 1 to 255",
		"mlx5_0:01":                       "from 1 to 255",
		"mlx5_0:x":                        "from 1 to 255",
		"mlx5_0:":                         "from 1 to 255",
		"mlx5_0:1:2":                      "from 1 to 255",
		"mlx5_0 mlx5_1":                   "letters, digits",
		"/dev/infiniband/uverbs0":         "letters, digits",
		"mlx5_[01]":                       "letters, digits",
		"ok," + strings.Repeat("x", 64):   "at most 63",
		"mlx5_0,\x1b[31m":                 "letters, digits",
		"mlx5_0:99999999999999999999":     "from 1 to 255",
		"mlx5_0:1," + "mlx5_1:1,mlx5\\_2": "letters, digits",
	} {
		f, err := ParseFilter(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "example:") {
			t.Errorf("%q: %v, want %q", text, err, want)
			continue
		}
		if strings.ContainsRune(err.Error(), 0x1b) || len(f.with)+len(f.without) > 0 {
			t.Errorf("%q: the error is %q, the filter %v", text, err, f)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{"", "mlx5_0:1,mlx5_1,!mlx5_2", "!a*:3", "a,,b", ":", "\x00"} {
		f.Add(text, "mlx5_0", 1)
	}
	f.Fuzz(func(t *testing.T, text, device string, port int) {
		filter, err := ParseFilter(text)
		if err != nil {
			if !strings.Contains(err.Error(), "example") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		_ = filter.Match(device, port)
		for _, c := range filter.without {
			if filter.Match(c.device, max(c.port, 1)) && !strings.ContainsAny(c.device, "*?") {
				t.Errorf("%q: %s:%d is excluded and wanted", text, c.device, c.port)
			}
		}
		if len(filter.with) == 1 && len(filter.without) == 0 &&
			!filter.Match(filter.with[0].device, max(filter.with[0].port, 1)) {
			t.Errorf("%q does not want what it names", text)
		}
	})
}
