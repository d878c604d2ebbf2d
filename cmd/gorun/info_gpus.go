package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/topology"
)

const noCUDA = "memory and peers are shown by a gorun that is built with CGO_ENABLED=1 and -tags cuda"

// askGPUs returns what asks a driver for its devices; nil in a binary that was built without one.
func askGPUs(d accel.Driver, err error) func() ([]accel.Device, error) {
	if err != nil {
		return nil
	}
	return d.Devices
}

// askCUDA adds what the driver's library knows of the GPUs.
func (m *machine) askCUDA(ask func() ([]accel.Device, error)) {
	type answer struct {
		devices []accel.Device
		err     error
	}
	a, ok := within(patience, func() (a answer) {
		a.devices, a.err = ask()
		return a
	})
	if !ok {
		a.err = fmt.Errorf("CUDA did not answer within %v: does the driver hang? (dmesg)", patience)
	}
	m.cudaAsked = true
	if errors.Is(a.err, accel.ErrNoDriver) && !slices.ContainsFunc(m.GPUs, usable) {
		return // nothing is missing on a host without such a GPU
	}
	m.cudaErr = a.err
	var listed []topology.GPU
	for i, d := range a.devices {
		c := topology.CUDA{Number: i, Memory: d.Memory, DMABuf: d.DMABuf}
		for _, peer := range d.Peers {
			if peer >= 0 && peer < len(a.devices) {
				c.Peers = append(c.Peers, a.devices[peer].PCI)
			}
		}
		listed = append(listed, topology.GPU{Name: d.Name, Driver: "nvidia", Node: -1,
			Slot: topology.Slot{Chain: []string{d.PCI}}, CUDA: &c})
	}
	m.MergeGPUs(listed, a.err)
}

// usable reports whether a GPU has the driver that CUDA needs.
func usable(g topology.GPU) bool { return g.Driver == "nvidia" }

func (m machine) printGPUs(w io.Writer, cols int) {
	if len(m.GPUs) == 0 {
		if m.err == nil || m.asked {
			fmt.Fprintf(w, "%-18s%s\n", "GPUs", "none")
		}
		return
	}
	fmt.Fprintln(w, "GPUs")
	known := slices.ContainsFunc(m.GPUs, func(g topology.GPU) bool { return g.CUDA != nil })
	rows := [][]string{{"PCI", "NUMA", "driver", "model"}}
	if known {
		rows[0] = []string{"PCI", "NUMA", "driver", "CUDA", "memory", "peers", "model"}
	}
	for _, g := range m.GPUs {
		rows = append(rows, m.gpuRow(g, known))
	}
	printTable(w, rows)
	notes := m.gpuNotes()
	if known {
		notes = append([]string{"CUDA: the number by which programs name the GPU; peers: the GPUs that copy to and from it " +
			"directly, by NVLink or PCIe (nvidia-smi topo -m says which)"}, notes...)
	}
	printNotes(w, notes, cols)
	if len(m.Devices) > 0 {
		m.printNear(w, cols)
		m.printDirect(w, cols)
	}
}

func (m machine) gpuRow(g topology.GPU, cuda bool) []string {
	row := []string{g.Slot.Address(), numa(g.Node, false), absent(g.Driver, g.Driver == "")}
	switch {
	case !cuda:
	case g.CUDA == nil:
		row = append(row, "-", "unknown", "unknown")
	default:
		row = append(row, strconv.Itoa(g.CUDA.Number), gib(g.CUDA.Memory), m.peers(g))
	}
	return append(row, known(g.Name))
}

// peers names the GPUs that copy to and from another directly, by their numbers.
func (m machine) peers(g topology.GPU) string {
	var numbers []string
	for _, other := range m.GPUs {
		if other.CUDA != nil && slices.Contains(g.CUDA.Peers, other.Slot.Address()) {
			numbers = append(numbers, strconv.Itoa(other.CUDA.Number))
		}
	}
	return dash(strings.Join(numbers, " "))
}

func gib(bytes int64) string {
	if bytes <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// gpuNotes say what the host has for NVIDIA's GPUs, and why some columns are missing.
func (m machine) gpuNotes() (notes []string) {
	if !slices.ContainsFunc(m.GPUs, usable) {
		return nil
	}
	notes = append(notes, supportText(m.Support))
	if !m.cudaAsked {
		return append(notes, noCUDA)
	}
	var missing remarks
	for _, g := range m.GPUs {
		if usable(g) && g.CUDA == nil {
			missing.add(g.Slot.Address(), "memory and peers are unknown: "+g.CUDAWhy)
		}
	}
	return append(notes, missing.notes()...)
}

// supportText says what a host has for GPUDirect.
func supportText(s topology.Support) string {
	driver := "NVIDIA's driver " + known(s.Version)
	switch s.Open {
	case topology.Yes:
		driver += " (open kernel modules)"
	case topology.No:
		driver += " (not the open kernel modules)"
	}
	kernel := "Linux " + known(s.Kernel)
	switch s.DMABuf {
	case topology.Yes:
		kernel += " with dma-buf"
	case topology.No:
		kernel += " without dma-buf"
	}
	modules := "no module for peer memory"
	if len(s.Modules) > 0 {
		modules = "peer memory by " + strings.Join(s.Modules, ", ")
	}
	return driver + "; " + kernel + "; " + modules
}

// printNear prints a line for each GPU and a column for each RDMA device, as many columns at a time as there is room.
func (m machine) printNear(w io.Writer, cols int) {
	used := map[topology.Near]bool{}
	room := cols - 2 - len("0000:00:00.0")
	for devices := m.Devices; len(devices) > 0; {
		n, wide := 0, 0
		for n < len(devices) && (n == 0 || wide+2+max(len(devices[n].Name), 5) <= room) {
			wide += 2 + max(len(devices[n].Name), 5)
			n++
		}
		rows := [][]string{{""}}
		for _, d := range devices[:n] {
			rows[0] = append(rows[0], d.Name)
		}
		for _, g := range m.GPUs {
			row := []string{g.Slot.Address()}
			for _, d := range devices[:n] {
				near, switches := m.Distance(g, d)
				used[near] = true
				row = append(row, nearText(near, switches))
			}
			rows = append(rows, row)
		}
		fmt.Fprintln(w)
		printTable(w, rows)
		devices = devices[n:]
	}
	fmt.Fprintln(w)
	for _, n := range topology.Nears() {
		if used[n] {
			fmt.Fprintf(w, "  %-5s %s\n", n, strings.TrimLeft(wrap(n.Meaning(), max(cols-8, 30), "        "), " "))
		}
	}
}

func nearText(near topology.Near, switches int) string {
	if near == topology.PXB {
		return fmt.Sprint(near, " ", switches)
	}
	return string(near)
}

// printDirect says with which RDMA devices GPUDirect can work. GPUs and devices that are alike share a line.
func (m machine) printDirect(w io.Writer, cols int) {
	var notes []string
	for _, p := range m.Pairs() {
		gpus := strings.Join(p.GPUs, ", ")
		if len(p.GPUs) == len(m.GPUs) && len(m.GPUs) > 1 {
			gpus = "all GPUs"
		}
		notes = append(notes, fmt.Sprintf("GPUDirect of %s with %s: %s", gpus, strings.Join(p.Devices, ", "),
			directText(p.Direct)))
	}
	fmt.Fprintln(w)
	printNotes(w, notes, cols)
}

func directText(d topology.Direct) string {
	switch d.Can {
	case topology.Yes:
		return "by " + d.By
	case topology.No:
		return "no: " + d.Why
	}
	return "unknown: " + d.Why
}
