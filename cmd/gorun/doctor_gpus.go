package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/topology"
)

// checkGPUs looks at the GPUs of a host, where some host has one that messages can use.
func (e *exam) checkGPUs(v *visit) {
	f := v.Facts.RDMA
	for _, g := range f.GPUs {
		if g.Driver == "" || g.Driver == "nouveau" {
			e.add("gpu", v.Name, "", "modprobe nvidia; dmesg | grep -i nvrm", "the GPU %s has %s, and other GPUs have "+
				"NVIDIA's driver", printable(g.Slot.Address()), absentDriver(g.Driver))
		}
	}
	if !slices.ContainsFunc(f.GPUs, usable) {
		return
	}
	if f.CUDAError != "" {
		e.add("gpu", v.Name, printable(f.CUDAError), "on HOST: nvidia-smi; ls -l /dev/nvidia*; dmesg | grep -i nvrm",
			"CUDA does not list its GPUs")
	}
	e.checkGPUDirect(v)
}

func absentDriver(name string) string {
	if name == "" {
		return "no driver"
	}
	return "the driver " + name
}

// checkGPUDirect looks for GPUs that can use GPUDirect with no adapter that is in use. One adapter is enough: hosts have
// others for storage. What the host's files do not say counts as possible. Messages go through memory of the host where
// GPUDirect cannot work, so that is a note, unless the setting asks for GPUDirect.
func (e *exam) checkGPUDirect(v *visit) {
	if e.direct == "off" {
		return
	}
	f := v.Facts.RDMA
	inUse := func(name string) bool {
		return slices.ContainsFunc(f.Devices, func(d topology.Device) bool {
			return d.Name == name && !d.Virtual && active(d)
		})
	}
	for _, g := range f.GPUs {
		if !usable(g) {
			continue
		}
		var refused []topology.Pairs
		possible := false
		for _, p := range f.Direct {
			if !slices.Contains(p.GPUs, g.Slot.Address()) || !slices.ContainsFunc(p.Devices, inUse) {
				continue
			}
			possible = possible || p.Can != topology.No
			refused = append(refused, p)
		}
		if possible {
			continue
		}
		for _, p := range refused {
			var names []string
			for _, name := range p.Devices {
				if inUse(name) {
					names = append(names, name)
				}
			}
			note := e.direct != "on"
			e.addFinding(note, "gpu", v.Name, "", printable(p.Mend), "its GPUs cannot use GPUDirect with %s: %s",
				printable(strings.Join(names, ", ")), printable(p.Why))
		}
	}
}

// gpuRow is what the table of GPUs says of a host after its name; nil: it has none.
func (v *visit) gpuRow() []string {
	if v.err != nil || len(v.Facts.RDMA.GPUs) == 0 {
		return nil
	}
	f := v.Facts.RDMA
	var names, memory, peers remarks
	for _, g := range f.GPUs {
		address := g.Slot.Address()
		names.add(address, known(printable(g.Name)))
		if c := g.CUDA; c != nil {
			memory.add(address, gib(c.Memory))
			peers.add(address, fmt.Sprint(len(c.Peers)))
		}
	}
	driver := dash("")
	if s := f.Support; s != nil {
		driver = known(printable(s.Version))
		if s.Open == topology.Yes {
			driver += ", open"
		}
	}
	var direct []string
	for _, p := range f.Direct {
		text := strings.Join(p.Devices, " ") + ": " + string(p.Can)
		switch p.Can {
		case topology.Yes:
			text = strings.Join(p.Devices, " ") + ": " + p.By
		case topology.Unsaid:
			text += "unknown"
		}
		if text = printable(text); !slices.Contains(direct, text) {
			direct = append(direct, text)
		}
	}
	return []string{strings.Join(names.counts(), ", "), known(strings.Join(memory.texts, ", ")),
		known(strings.Join(peers.texts, ", ")), driver, dash(strings.Join(direct, "; "))}
}

// counts says of how many names each remark is.
func (g *remarks) counts() (all []string) {
	for _, text := range g.texts {
		all = append(all, fmt.Sprint(len(g.names[text]), " ", text))
	}
	return all
}
