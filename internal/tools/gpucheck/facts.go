package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// facts are of the machine, the driver and the devices.
func (c *check) facts() {
	c.Printf("gpu-check, %s\n", c.report.Time)
	for name, path := range map[string]string{"built": c.Path("BUILT"), "kernel": "/proc/sys/kernel/osrelease",
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
	c.PrintFacts()
	if c.report.Software {
		c.Printf("%s: no GPU has run this, and its figures say nothing about one\n", software)
	}
	c.questions()
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
	if err != nil {
		c.report.Facts["devices"] = "none: " + err.Error()
	}
	c.Passed("the driver answers", time.Since(start), err)
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
		c.Printf("answers: %v\n", err)
		return
	}
	defer os.RemoveAll(dir)
	cmd := partrun.Command{Limit: 40 * time.Second, Args: []string{"answers", dir}}
	if lib := os.Getenv("GORUN_CUDA_LIB"); lib != "" {
		cmd.Env = []string{"CUDA_LIB=" + lib}
	}
	out := c.Part("the questions that an H100 was asked", cmd)
	c.report.Answers = strings.Split(strings.TrimSpace(out), "\n")
	h100, err := os.ReadFile(c.Path("h100.txt"))
	if err != nil {
		c.Printf("    no answers of an H100 to compare with: %v\n", err)
	}
	theirs := attributes(string(h100))
	for _, line := range c.report.Answers {
		name, value, ok := attribute(line)
		if !ok {
			continue
		}
		if name == "GPU_DIRECT_RDMA_WRITES_ORDERING" || name == "DMA_BUF_SUPPORTED" {
			c.Printf("%-12s %s\n", "attribute", name+" = "+value)
		}
		if name == "COMPUTE_MODE" && value != "0" {
			c.Printf("%-12s %s\n", "attribute", name+" = "+value+": ranks cannot share the device (nvidia-smi -c DEFAULT)")
		}
		if was, known := theirs[name]; known && was != value {
			c.report.Differs = append(c.report.Differs, fmt.Sprintf("%s = %s (H100: %s)", name, value, was))
		}
	}
	for _, line := range c.report.Differs {
		c.Printf("%-12s %s\n", "differs", line)
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
