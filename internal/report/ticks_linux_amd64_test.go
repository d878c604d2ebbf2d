package report

import "testing"

// The counter is used where the kernel offers it as a clock, or the hypervisor's clock is made of it.
func TestTicksAreSteady(t *testing.T) {
	const both = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\nbugs\t\t:\n"
	for _, c := range []struct {
		available, current, cpuinfo string
		want                        bool
	}{
		{"tsc hpet acpi_pm \n", "tsc\n", "", true},
		{"kvm-clock tsc \n", "kvm-clock\n", "", true},
		{"kvm-clock \n", "kvm-clock\n", both, true},
		{"kvm-clock \n", "kvm-clock\n", "flags\t\t: tsc constant_tsc\nnonstop_tsc\n", false},
		{"kvm-clock \n", "kvm-clock\n", "processor\t: 0\nflags\t\t: tsc constant_tsc\nbugs\t: nonstop_tsc\n", false},
		{"hpet acpi_pm \n", "hpet\n", both, false},
		{"", "", "", false},
	} {
		if got := steady(c.available, c.current, c.cpuinfo); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
