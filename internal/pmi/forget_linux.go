package pmi

import (
	"bytes"
	"os"
	"strconv"
)

// scrub overwrites the value of a variable in the memory where the kernel put the environment when the program
// was started, which os.Unsetenv does not reach: /proc/PID/environ and a dump of the stack show it otherwise. Where
// the system forbids it, the variable stays there, readable by the same user only.
func scrub(name string) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const envStart = 50 - 3 // the 50th field; f begins with the third
	if len(f) < envStart+2 {
		return
	}
	start, err1 := strconv.ParseInt(string(f[envStart]), 10, 64)
	end, err2 := strconv.ParseInt(string(f[envStart+1]), 10, 64)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer mem.Close()
	if err1 != nil || err2 != nil || start <= 0 || end <= start || end-start > 16<<20 {
		return
	}
	env := make([]byte, end-start)
	if _, err := mem.ReadAt(env, start); err != nil {
		return
	}
	for at := 0; at < len(env); {
		entry, _, _ := bytes.Cut(env[at:], []byte{0})
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			mem.WriteAt(bytes.Repeat([]byte{'x'}, len(value)), start+int64(at+len(entry)-len(value)))
		}
		at += len(entry) + 1
	}
	clear(env)
}
