package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

// fakeDriver is a driver that says what devices there are, and nothing else.
type fakeDriver struct {
	accel.Driver
	all []accel.Device
	err error
}

func (d fakeDriver) Devices() ([]accel.Device, error) { return d.all, d.err }

// twoH100 are the GPUs of the tree h100, in another order than in /sys, and with a hostile number of a peer.
var twoH100 = []accel.Device{
	{Name: "NVIDIA H100 80GB HBM3", PCI: "0000:00:07.0", Memory: 81079 << 20, DMABuf: true, Peers: []int{1}},
	{Name: "NVIDIA H100 80GB HBM3", PCI: "00000000:00:06.0", Memory: 81079 << 20, DMABuf: true, Peers: []int{0, -1, 2}},
}

// withCUDA reads a tree, and asks a driver.
func withCUDA(t *testing.T, tree string, d accel.Driver, err error) machine {
	t.Helper()
	root := topologytest.Plant(t, topologytest.Load(t, tree))
	return readMachine(topology.Source{Root: root, Addrs: topologytest.Addrs}, nil, askGPUs(d, err))
}

func gpuPage(m machine) string {
	_, gpus, _ := strings.Cut(string(page(m, 100)), "\nGPUs")
	return gpus
}

func TestInfoCUDA(t *testing.T) {
	golden(t, "info-h100-cuda.txt", page(withCUDA(t, "h100", fakeDriver{all: twoH100}, nil), 100))
}

// What the driver does not say is marked, and the rest is printed.
func TestInfoCUDAMissing(t *testing.T) {
	hidden := slices.Clone(twoH100[:1])
	hidden[0].Peers, hidden[0].Memory = nil, 0
	for _, c := range []struct {
		what, tree string
		driver     accel.Driver
		err        error
		want, not  []string
	}{
		{"built without", "h100", nil, accel.ErrNoDriver, []string{noCUDA}, []string{"are unknown", "peers:"}},
		{"one is hidden", "h100", fakeDriver{all: hidden}, nil, []string{"0000:00:07.0  unknown  nvidia  0     unknown  -",
			"0000:00:06.0: memory and peers are unknown: CUDA does not list it"}, []string{noCUDA}},
		{"it fails", "h100", fakeDriver{err: errors.New("cuInit: mismatch")}, nil, []string{"0000:00:06.0, 0000:00:07.0: memory " +
			"and peers are unknown: cuInit: mismatch", "all GPUs with mlx5_0: by dma-buf"}, []string{noCUDA, "peers:"}},
		{"another vendor's", "roce", fakeDriver{err: accel.ErrNoDriver}, nil, []string{"amdgpu"}, []string{"CUDA", "memory and"}},
	} {
		m := withCUDA(t, c.tree, c.driver, c.err)
		text := strings.Join(strings.Fields(gpuPage(m)), " ")
		for _, want := range c.want {
			if !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%s: no %q in\n%s", c.what, want, gpuPage(m))
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in\n%s", c.what, not, gpuPage(m))
			}
		}
		if c.tree == "roce" && m.cudaErr != nil {
			t.Errorf("%s: %v is an error", c.what, m.cudaErr)
		}
	}
}

// A driver that hangs costs a line and no more.
func TestInfoCUDAHangs(t *testing.T) {
	root := topologytest.Plant(t, topologytest.Load(t, "h100"))
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		mute := func() ([]accel.Device, error) { <-release; return nil, nil }
		start := time.Now()
		text := string(page(readMachine(topology.Source{Root: root}, nil, mute), 200))
		if !strings.Contains(text, "memory and peers are unknown: CUDA did not answer within 10s") ||
			time.Since(start) != patience {
			t.Errorf("after %v:\n%s", time.Since(start), text)
		}
	})
}

// Programs get the same facts, under names that stay.
func TestInfoGPUsJSON(t *testing.T) {
	f := factsOfDevices(withCUDA(t, "h100", fakeDriver{all: twoH100}, nil))
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(f); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"CUDA":{"Number":1,"Memory":85017493504,"Peers":["0000:00:07.0"],"DMABuf":true}`,
		`"near":{"0000:00:06.0":{"mlx4_0":"PHB","mlx5_0":"PHB"},"0000:00:07.0":{"mlx4_0":"PHB","mlx5_0":"PHB"}}`,
		`"gpudirect_support":{"Version":"580.159.04","Open":"yes","Kernel":"6.18.44-fc-v657-gpu","DMABuf":"yes",` +
			`"Modules":null}`,
		`"gpudirect":[{"GPUs":["0000:00:06.0","0000:00:07.0"],"Devices":["mlx4_0"],"Can":"no","By":"","Why":"dma-buf needs`,
		`"built_with_cuda":true`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	f = factsOfDevices(withCUDA(t, "laptop", fakeDriver{err: fmt.Errorf("%w: no libcuda.so.1", accel.ErrNoDriver)}, nil))
	if f.Support != nil || len(f.Near) > 0 || f.Direct != nil || f.CUDAError != "" {
		t.Errorf("a laptop has %+v", f)
	}
}

// visited is a host with the devices of a tree, as it describes itself to gorun doctor.
func visited(t *testing.T, name, tree string, d accel.Driver, err error) *visit {
	t.Helper()
	v := healthy(name)
	line, failed := json.Marshal(factsOfDevices(withCUDA(t, tree, d, err)))
	if failed == nil {
		failed = json.Unmarshal(line, &v.Facts.RDMA)
	}
	if failed != nil {
		t.Fatal(failed)
	}
	v.Facts.RDMA.Verbs = true
	return v
}

// The findings about GPUs of hosts a and b.
func TestDoctorGPUs(t *testing.T) {
	without := accel.ErrNoDriver
	drop := func(v *visit, name string) { // the adapter is not in use any more
		for i, d := range v.Facts.RDMA.Devices {
			if d.Name == name {
				v.Facts.RDMA.Devices[i].Ports[0].State = "DOWN"
			}
		}
	}
	for _, c := range []struct {
		what  string
		a, b  *visit
		spoil func(a, b *visit)
		wrong []string
		mend  string
	}{
		{"nothing", visited(t, "a", "h100", nil, without), visited(t, "b", "dgx", nil, without), nil, nil, ""},
		{"no adapter that can", visited(t, "a", "h100", nil, without), visited(t, "b", "h100", nil, without),
			func(a, b *visit) { drop(a, "mlx5_0"); drop(b, "mlx5_0") },
			[]string{"its GPUs cannot use GPUDirect with mlx4_0: dma-buf needs an RDMA driver"}, "modprobe nvidia_peermem"},
		{"no adapter", visited(t, "a", "h100", nil, without), visited(t, "b", "h100", nil, without),
			func(a, b *visit) { drop(a, "mlx5_0"); drop(b, "mlx5_0"); drop(a, "mlx4_0"); drop(b, "mlx4_0") }, nil, ""},
		{"CUDA fails", visited(t, "a", "h100", fakeDriver{err: errors.New("cuInit:\x1b mismatch")}, nil),
			visited(t, "b", "h100", fakeDriver{all: twoH100}, nil), nil, []string{"CUDA does not list its GPUs"}, "nvidia-smi"},
		{"one has no driver", visited(t, "a", "h100", nil, without), visited(t, "b", "h100", nil, without),
			func(_, b *visit) { b.Facts.RDMA.GPUs[0].Driver, b.Facts.RDMA.GPUs[1].Driver = "", "nouveau" },
			[]string{"the GPU 0000:00:06.0 has no driver", "the GPU 0000:00:07.0 has the driver nouveau"}, "modprobe nvidia"},
		{"no host uses them", visited(t, "a", "roce", nil, without), visited(t, "b", "roce", nil, without),
			func(a, b *visit) { a.Facts.RDMA.GPUs[0].Driver, b.Facts.RDMA.GPUs[0].Driver = "", "nouveau" }, nil, ""},
	} {
		if c.spoil != nil {
			c.spoil(c.a, c.b)
		}
		e := &exam{local: healthy("login"), visits: []*visit{c.a, c.b}}
		var got []finding
		for _, f := range e.diagnose() {
			if f.Kind == "gpu" {
				got = append(got, f)
			}
		}
		if len(got) != len(c.wrong) {
			t.Errorf("%s: %+v, want %q", c.what, got, c.wrong)
			continue
		}
		for i, want := range c.wrong {
			if !strings.HasPrefix(got[i].Wrong, want) || !strings.Contains(got[i].Mend, c.mend) ||
				strings.Contains(got[i].Details["a"], "\x1b") {
				t.Errorf("%s: %+v, want %q and %q", c.what, got[i], want, c.mend)
			}
		}
	}
}

// That GPUDirect cannot work is a note on hosts where nothing else is wrong. It is wrong where the setting asks for
// GPUDirect, and of no interest where the setting turns it off.
func TestDoctorNotesGPUDirect(t *testing.T) {
	for setting, want := range map[string]string{
		"auto": "\na note on a: its GPUs", "on": "\nwrong on a: its GPUs", "off": "",
	} {
		a := visited(t, "a", "h100", nil, accel.ErrNoDriver)
		for i := range a.Facts.RDMA.Devices {
			if a.Facts.RDMA.Devices[i].Name == "mlx5_0" { // mlx4_0 is left
				a.Facts.RDMA.Devices[i].Ports[0].State = "DOWN"
			}
		}
		e := &exam{local: a, visits: []*visit{a}, direct: setting}
		r := report{Hosts: e.visits, Findings: e.diagnose()}
		r.Findings = slices.DeleteFunc(r.Findings, func(f finding) bool { return f.Kind != "gpu" })
		r.OK = nothingWrong(r.Findings)
		var b strings.Builder
		r.print(&b)
		_, text, _ := strings.Cut(b.String(), "\n\n")
		if r.OK == (setting == "on") || r.OK != strings.Contains(text, "\nnothing is wrong\n") ||
			!strings.Contains(text, want) || want == "" && len(r.Findings) > 0 {
			t.Errorf("GORUN_GPUDIRECT=%s: %v\n%s", setting, r.OK, text)
		}
		if setting == "auto" {
			golden(t, "doctor-note.txt", []byte(text))
		}
	}
	note, fault := finding{Note: true}, finding{}
	if nothingWrong([]finding{note, fault}) || !nothingWrong([]finding{note, note}) || !nothingWrong(nil) {
		t.Error("the exit code forgets faults, or counts notes")
	}
}

// The table of GPUs has a line for hosts that are alike, and none for a host without GPUs.
func TestDoctorPrintsGPUs(t *testing.T) {
	r := report{Hosts: []*visit{
		visited(t, "n1", "h100", fakeDriver{all: twoH100}, nil), visited(t, "n2", "h100", fakeDriver{all: twoH100}, nil),
		visited(t, "n3", "dgx", nil, accel.ErrNoDriver), healthy("n4"), unreached("n5", "ssh: no"),
	}}
	r.Hosts[2].Facts.RDMA.GPUs[0].Name = "A100\x1b[31m"
	var b strings.Builder
	r.print(&b)
	_, text, _ := strings.Cut(b.String(), "\n\n")
	golden(t, "doctor-gpus.txt", []byte(text))
}
