package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	h := readFixture(t, "dgx")
	h.Merge([]Device{
		{Name: "softhca0", Library: "./libsofthca.so", Caps: &Caps{MaxSGE: 4},
			Ports: []Port{{Number: 1, State: "ACTIVE", MTU: 4096}}},
		{Name: "mlx5_0", Library: "libibverbs.so.1", Firmware: "other", Caps: &Caps{MaxSGE: 30},
			Ports: []Port{{Number: 1, State: "INIT", MTU: 2048, LID: 99}, {Number: 2, State: "DOWN"}}},
		{Name: "mlx5_1", CapsWhy: "ibv_open_device: permission denied"},
		{Name: "mlx5_2", Caps: &Caps{}, Ports: []Port{{Number: 1, MTU: 1024}}},
	}, nil)
	want := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_10", "softhca0"}
	if got := names(h); !slices.Equal(got, want) {
		t.Fatalf("devices %v, want %v", got, want)
	}
	d := h.find(t, "mlx5_0")
	if d.Caps == nil || d.Caps.MaxSGE != 30 || d.Library != "libibverbs.so.1" || d.CapsWhy != "" {
		t.Errorf("mlx5_0 has %+v", d)
	}
	if d.Firmware != "20.38.1002" || len(d.Ports) != 2 || d.Ports[0].State != "ACTIVE" || d.Ports[0].LID != 16 ||
		d.Ports[0].MTU != 2048 {
		t.Errorf("what the kernel's files know has changed, or what they do not was not added: %+v", d)
	}
	if d := h.find(t, "mlx5_1"); d.Caps != nil || d.CapsWhy != "ibv_open_device: permission denied" {
		t.Errorf("mlx5_1 has %+v", d)
	}
	if p := h.find(t, "mlx5_2").Ports[0]; p.MTU != 1024 || p.MTUFrom != "" {
		t.Errorf("a guess of the MTU stands: %+v", p)
	}
	if d := h.find(t, "mlx5_3"); d.Caps != nil || !strings.Contains(d.CapsWhy, "libibverbs does not know it") {
		t.Errorf("mlx5_3 has %+v", d)
	}
	soft := h.find(t, "softhca0")
	if near, _ := h.Distance(h.GPUs[0], soft); near != None || soft.Caps.MaxSGE != 4 {
		t.Errorf("the software device is %s, %+v", near, soft)
	}
}

func TestMergeError(t *testing.T) {
	h := readFixture(t, "dgx")
	h.Merge(nil, errors.New("libibverbs.so.1 was not found:\n\x1b[31minstall it"))
	for _, d := range h.Devices {
		if d.Caps != nil || d.CapsWhy != "libibverbs.so.1 was not found:[31minstall it" {
			t.Errorf("%s: %q", d.Name, d.CapsWhy)
		}
	}
	var none Host
	none.Merge(nil, nil)
	if len(none.Devices) != 0 {
		t.Errorf("%+v", none)
	}
}
