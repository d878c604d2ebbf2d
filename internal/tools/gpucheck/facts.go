package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// facts are of the machine, the driver and the devices.
func (c *check) facts() {
	c.printf("gpu-check, %s\n", c.report.Time)
	for name, path := range map[string]string{"built": filepath.Join(c.dir, "BUILT"), "kernel": "/proc/sys/kernel/osrelease",
		"driver": "/proc/driver/nvidia/version", "yama": "/proc/sys/kernel/yama/ptrace_scope"} {
		b, err := os.ReadFile(path)
		line, _, _ := strings.Cut(string(b), "\n")
		if err != nil {
			line = "unknown: " + err.Error()
		}
		c.report.Facts[name] = strings.TrimSpace(line)
	}
	c.report.Facts["CPUs"] = fmt.Sprint(runtime.NumCPU())
	c.report.Facts["library"] = os.Getenv("GORUN_CUDA_LIB")
	if c.report.Facts["library"] == "" {
		c.report.Facts["library"] = "libcuda.so.1 of the system"
	}
	c.devices()
	for _, name := range slices.Sorted(keys(c.report.Facts)) {
		c.printf("%-12s %s\n", name, c.report.Facts[name])
	}
	if c.report.Software {
		c.printf("%s: no GPU has run this, and its figures say nothing about one\n", software)
	}
	c.questions()
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// devices asks the driver in this process.
func (c *check) devices() {
	start := time.Now()
	d, err := accel.InUse()
	var all []accel.Device
	if err == nil {
		all, err = d.Devices()
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("the driver has no devices (CUDA_VISIBLE_DEVICES is %q)", os.Getenv("CUDA_VISIBLE_DEVICES"))
	}
	if err == nil {
		// It is never freed: without a process that has a context, and without persistence mode, each job that follows would
		// wait some seconds until the driver has started the device.
		_, err = d.Alloc(0, 1<<20)
	}
	p := part{Name: "the driver answers", Seconds: time.Since(start).Seconds(), Passed: err == nil}
	if err != nil {
		p.Why = err.Error()
		c.report.Facts["devices"] = "none: " + p.Why
	}
	c.report.Parts = append(c.report.Parts, p)
	for i, one := range all {
		c.report.Facts[fmt.Sprint("device ", i)] = fmt.Sprintf("%s, PCI %s, %d MiB, dma-buf %v, peers %v", one.Name, one.PCI,
			one.Memory>>20, one.DMABuf, one.Peers)
		c.report.Software = c.report.Software || one.Name == "softcuda"
	}
}

// questions puts those of softdevices/softcuda/test/answers.c, and compares the attributes of the device with the
// H100's. That is no part that fails: another GPU may answer in another way.
func (c *check) questions() {
	dir, err := os.MkdirTemp("", "gpu-check-")
	if err != nil {
		c.printf("answers: %v\n", err)
		return
	}
	defer os.RemoveAll(dir)
	cmd := command{limit: 40 * time.Second, args: []string{"answers", dir}}
	if lib := os.Getenv("GORUN_CUDA_LIB"); lib != "" {
		cmd.env = []string{"CUDA_LIB=" + lib}
	}
	out := c.part("the questions that an H100 was asked", cmd)
	c.report.Answers = strings.Split(strings.TrimSpace(out), "\n")
	h100, err := os.ReadFile(filepath.Join(c.dir, "h100.txt"))
	if err != nil {
		c.printf("    no answers of an H100 to compare with: %v\n", err)
	}
	theirs := attributes(string(h100))
	for _, line := range c.report.Answers {
		name, value, ok := attribute(line)
		if !ok {
			continue
		}
		if name == "GPU_DIRECT_RDMA_WRITES_ORDERING" || name == "DMA_BUF_SUPPORTED" {
			c.printf("%-12s %s\n", "attribute", name+" = "+value)
		}
		if name == "COMPUTE_MODE" && value != "0" {
			c.printf("%-12s %s\n", "attribute", name+" = "+value+": ranks cannot share the device (nvidia-smi -c DEFAULT)")
		}
		if was, known := theirs[name]; known && was != value {
			c.report.Differs = append(c.report.Differs, fmt.Sprintf("%s = %s (H100: %s)", name, value, was))
		}
	}
	for _, line := range c.report.Differs {
		c.printf("%-12s %s\n", "differs", line)
	}
}

// attribute reads a line such as "attr: attribute 118 GPU_DIRECT_RDMA_WRITES_ORDERING = 100".
func attribute(line string) (name, value string, ok bool) {
	text, ok := strings.CutPrefix(line, "attr: attribute ")
	if !ok {
		return "", "", false
	}
	left, value, ok := strings.Cut(text, " = ")
	_, name, found := strings.Cut(left, " ")
	return name, strings.TrimSpace(value), ok && found
}

func attributes(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := attribute(line); ok {
			all[name] = value
		}
	}
	return all
}
