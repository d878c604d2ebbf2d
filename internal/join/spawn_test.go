package join

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
)

func portForTest() *Port {
	return &Port{Parents: 4, Root: 2, Size: 7, name: "gorun_spawn_1", key: bytes.Repeat([]byte{9}, portKeySize),
		address: []byte("where")}
}

func TestPort(t *testing.T) {
	p := portForTest()
	got, err := ParsePort(p.Encode())
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v, want %+v", got, err, p)
	}
	numbers := make([]int, p.Parents)
	for place := range numbers {
		numbers[place] = p.Number(place)
	}
	if want := []int{1, 2, 0, 3}; !reflect.DeepEqual(numbers, want) { // the root leads
		t.Errorf("the parents have the numbers %v, want %v", numbers, want)
	}
}

// FuzzPort: what is no port is an error, and what is one makes sense.
func FuzzPort(f *testing.F) {
	good := portForTest().Encode()
	f.Add(good)
	for n := range len(good) {
		f.Add(good[:n])
	}
	f.Add(bytes.Repeat([]byte{1}, len(good)))
	for _, bad := range []*Port{{Parents: 4, Root: 4, Size: 7}, {Parents: 7, Root: 2, Size: 7}, {Size: 7}} {
		bad.key = make([]byte, portKeySize)
		f.Add(bad.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePort(b)
		if err != nil {
			return
		}
		if p.Root < 0 || p.Root >= p.Parents || p.Parents >= p.Size || len(p.key) != portKeySize {
			t.Errorf("%q is %+v", b, p)
		}
		if !bytes.Equal(p.Encode(), b) {
			t.Errorf("%q becomes %q", b, p.Encode())
		}
	})
}

// A world with spawned ranks has the transports that a process can open twice, whatever the settings name.
func TestTransportsOfALateWorld(t *testing.T) {
	for want, wanted := range map[string][]string{"[shm tcp]": auto(), "[tcp]": {"ofi"}, "[shm]": {"shm", "ucx"}} {
		if got := lateOnes(wanted); want != fmt.Sprint(got) {
			t.Errorf("of %v it has %v, want %s", wanted, got, want)
		}
	}
}
