package main

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCoresOf(t *testing.T) {
	alone := func(cpu int) []int { return []int{cpu} }
	threads := func(cpu int) []int { return []int{cpu &^ 1, cpu | 1} }
	unknown := func(int) []int { return nil }
	for _, c := range []struct {
		cpus     []int
		siblings func(int) []int
		want     string
	}{
		{[]int{0, 1}, alone, "[0 1]"},
		{[]int{0, 1, 2, 3}, threads, "[0 2]"},
		{[]int{1, 2, 3}, threads, "[1 2]"},
		{[]int{5, 130}, alone, "[5 130]"},
		{[]int{0, 1}, threads, "[0]"},
		{nil, alone, "[]"},
		{[]int{2, 3}, unknown, "[2 3]"},
	} {
		var set unix.CPUSet
		for _, cpu := range c.cpus {
			set.Set(cpu)
		}
		if got := fmt.Sprint(coresOf(set, c.siblings)); got != c.want {
			t.Errorf("of %v: %s, want %s", c.cpus, got, c.want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string]string{"0": "[0]", "0-1": "[0 1]", "0,64": "[0 64]", "0-1,8-9": "[0 1 8 9]",
		"": "[]", "x": "[]", "1-": "[]", "0-99999999999": "[]", "0-9999999": "[]", "3-1": "[]"} {
		if got := fmt.Sprint(parseCPUs(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestTheGauge(t *testing.T) {
	gauge, err := newGauge()
	if errors.Is(err, errOneCore) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	g := gauge()
	if err := unix.SchedGetaffinity(0, &after); err != nil || before != after {
		t.Errorf("the thread may run on %v afterwards, before on %v, %v", after, before, err)
	}
	if !steady(g) {
		t.Errorf("%v µs", g)
	}
}
