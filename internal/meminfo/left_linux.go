package meminfo

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Left is the smallest of the host's available memory and what each cgroup above this process has left, and where that
// is written.
func Left() (free int64, why string) {
	free, why = math.MaxInt64, "no limit is known"
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if n, ok := field(b, "MemAvailable:"); ok {
			free, why = n*1024, "MemAvailable in /proc/meminfo"
		}
	}
	for _, dir := range memoryCgroups() {
		for _, names := range [][3]string{
			{"memory.max", "memory.current", "inactive_file"},
			{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
		} {
			limit, ok1 := number(dir, names[0])
			used, ok2 := number(dir, names[1])
			if !ok1 || !ok2 {
				continue
			}
			if b, err := os.ReadFile(filepath.Join(dir, "memory.stat")); err == nil {
				if n, ok := field(b, names[2]); ok {
					used -= n // cached files make room
				}
			}
			if left := limit - used; left < free {
				free, why = max(left, 0), filepath.Join(dir, names[0])
			}
		}
	}
	return free, why
}

// memoryCgroups are the folders of this process's memory cgroup and of all above it, for both versions of cgroups.
func memoryCgroups() []string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var roots []string
		switch {
		case parts[1] == "":
			roots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			roots = []string{"/sys/fs/cgroup/memory"}
		}
		for _, root := range roots {
			for p := filepath.Clean("/" + parts[2]); ; p = filepath.Dir(p) {
				dirs = append(dirs, filepath.Join(root, p))
				if p == "/" {
					break
				}
			}
		}
	}
	return dirs
}

// field finds "name number" at the beginning of a line.
func field(b []byte, name string) (int64, bool) {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) >= 2 && string(f[0]) == name {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func number(dir, name string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no number
	return n, err == nil
}
