package cpuset

import (
	"reflect"
	"testing"
	"testing/fstest"
)

func files(kv ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1])}
	}
	return m
}

func TestQuota(t *testing.T) {
	const mount2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	const mount1 = "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	for _, c := range []struct {
		name string
		fs   fstest.MapFS
		want float64
	}{
		{"nothing mounted", files(), 0},
		{"v2 own limit", files("proc/self/cgroup", "0::/job\n", "proc/self/mountinfo", mount2,
			"sys/fs/cgroup/job/cpu.max", "150000 100000\n"), 1.5},
		{"v2 none", files("proc/self/cgroup", "0::/job\n", "proc/self/mountinfo", mount2,
			"sys/fs/cgroup/job/cpu.max", "max 100000\n"), 0},
		{"v2 tighter parent", files("proc/self/cgroup", "0::/a/b/c\n", "proc/self/mountinfo", mount2,
			"sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n", "sys/fs/cgroup/a/cpu.max", "200000 100000\n"), 2},
		{"v2 in a container", files("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", mount2,
			"sys/fs/cgroup/cpu.max", "300000 100000\n"), 3},
		{"v2 mount shows a part", files("proc/self/cgroup", "0::/pod/x\n",
			"proc/self/mountinfo", "30 23 0:26 /pod /cg rw - cgroup2 cgroup2 rw\n",
			"cg/x/cpu.max", "100000 100000\n"), 1},
		{"v1", files("proc/self/cgroup", "4:cpu,cpuacct:/job\n2:memory:/x\n", "proc/self/mountinfo", mount1,
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"), 2.5},
		{"v1 none", files("proc/self/cgroup", "4:cpu,cpuacct:/job\n", "proc/self/mountinfo", mount1,
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"), 0},
		{"damaged", files("proc/self/cgroup", "0::/job\nx\n::", "proc/self/mountinfo", mount2+"what\n",
			"sys/fs/cgroup/job/cpu.max", "fast\n"), 0},
	} {
		if q := quota(c.fs); q != c.want {
			t.Errorf("%s: %v, want %v", c.name, q, c.want)
		}
	}
}

func TestUsable(t *testing.T) {
	four := make([]CPU, 4)
	for _, c := range []struct {
		quota float64
		want  int
	}{{0, 4}, {2, 2}, {1.5, 1}, {0.5, 1}, {8, 4}} {
		if n := (Host{CPUs: four, Quota: c.quota}).Usable(); n != c.want {
			t.Errorf("quota %v: %d, want %d", c.quota, n, c.want)
		}
	}
	if n := (Host{}).Usable(); n != 1 {
		t.Errorf("no CPUs: %d, want 1", n)
	}
}

func TestTopology(t *testing.T) {
	fs := files(
		"sys/devices/system/cpu/cpu0/topology/core_id", "0\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id", "1\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n",
		"sys/devices/system/cpu/cpu2/topology/core_id", "0\n",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id", "0\n",
		"sys/devices/system/cpu/cpu3/topology/core_id", "0\n",
		"sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n",
		"sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0,2\n",
		"sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "1\n",
		"sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list", "0,2\n",
		"sys/devices/system/node/node0/cpulist", "0-2\n", "sys/devices/system/node/node1/cpulist", "3\n",
		"sys/devices/system/node/online", "0-1\n",
	)
	got := topology(fs, []int{0, 1, 2, 3})
	want := []CPU{{0, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, {1, 1, 0, 0, 1}, {3, 0, 1, 1, 0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestList(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "": nil, "1,3,5-6": {1, 3, 5, 6}} {
		ids, err := ParseList(text)
		if err != nil || !reflect.DeepEqual(ids, want) {
			t.Errorf("%q: %v %v", text, ids, err)
		}
		if back := FormatList(ids); back != text {
			t.Errorf("%q came back as %q", text, back)
		}
	}
	for _, text := range []string{"x", "3-1", "-1", "1,,2", "0-9999999"} {
		if ids, err := ParseList(text); err == nil {
			t.Errorf("%q was read as %v", text, ids)
		}
	}
}

func TestRead(t *testing.T) {
	h := Read()
	if len(h.CPUs) == 0 || h.Usable() < 1 || h.Usable() > len(h.CPUs) {
		t.Errorf("%+v", h)
	}
}

func TestMachine(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  Machine
	}{
		"amd64": {[]string{"sys/devices/system/cpu/online", "0-3,6\n", "proc/cpuinfo",
			"processor\t: 0\nmodel\t\t: 143\nmodel name\t: Abacus @ 1 Hz\n\nprocessor\t: 1\nmodel name\t: Other\n"},
			Machine{"Abacus @ 1 Hz", 5}},
		"arm64": {[]string{"sys/devices/system/cpu/online", "0\n", "proc/cpuinfo",
			"processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nCPU " +
				"part\t: 0x1\n"},
			Machine{"0x41 0xd0c", 1}},
		"unknown": {nil, Machine{}},
		"wrong":   {[]string{"sys/devices/system/cpu/online", "all\n"}, Machine{}},
	} {
		if got := machine(files(c.files...)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
