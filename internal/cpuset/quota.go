package cpuset

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// quota returns the tightest CPU limit of this process's cgroup and all its ancestors, in CPUs; 0 if there is none.
func quota(root fs.FS) float64 {
	v1, v2 := cgroups(root)
	tightest := 0.0
	note := func(q float64) {
		if q > 0 && (tightest == 0 || q < tightest) {
			tightest = q
		}
	}
	mounts := cgroupMounts(root)
	for _, m := range mounts {
		own := v1
		if m.v2 {
			own = v2
		}
		// Inside a container the cgroup's path may be given as the host sees it while the mount shows only
		// a part of it; then only what lies below the mount's root can be read.
		rel := strings.TrimPrefix(own, strings.TrimSuffix(m.root, "/"))
		for dir := path.Clean("/" + rel); ; dir = path.Dir(dir) {
			note(limitIn(root, strings.TrimPrefix(path.Join(m.dir, dir), "/"), m.v2))
			if dir == "/" {
				break
			}
		}
	}
	return tightest
}

// limitIn reads the limit that one cgroup directory sets itself.
func limitIn(root fs.FS, dir string, v2 bool) float64 {
	if v2 {
		text, _ := fs.ReadFile(root, path.Join(dir, "cpu.max"))
		f := strings.Fields(string(text))
		if len(f) != 2 {
			return 0
		}
		return ratio(f[0], f[1])
	}
	q, _ := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
	p, _ := fs.ReadFile(root, path.Join(dir, "cpu.cfs_period_us"))
	return ratio(strings.TrimSpace(string(q)), strings.TrimSpace(string(p)))
}

// ratio is 0 for "max" and -1, which mean no limit.
func ratio(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}

// cgroups returns the paths of this process in the hierarchy of the cpu controller (version 1) and in the unified one.
func cgroups(root fs.FS) (v1, v2 string) {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for l := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" && f[1] == "" {
			v2 = f[2]
		}
		for _, c := range strings.Split(f[1], ",") {
			if c == "cpu" {
				v1 = f[2]
			}
		}
	}
	return v1, v2
}

type cgroupMount struct {
	dir  string // where it is mounted
	root string // which cgroup is seen there
	v2   bool
}

// cgroupMounts finds where the hierarchies that can limit CPU time are mounted.
func cgroupMounts(root fs.FS) []cgroupMount {
	text, _ := fs.ReadFile(root, "proc/self/mountinfo")
	var all []cgroupMount
	for l := range strings.Lines(string(text)) {
		// 36 35 98:0 /root /mount/point options [optional fields] - type source superoptions
		before, after, ok := strings.Cut(strings.TrimSpace(l), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		isCPU := strings.Contains(","+g[2]+",", ",cpu,")
		if g[0] == "cgroup2" || (g[0] == "cgroup" && isCPU) {
			all = append(all, cgroupMount{dir: f[4], root: f[3], v2: g[0] == "cgroup2"})
		}
	}
	return all
}
