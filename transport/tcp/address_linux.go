package tcp

import "os"

// identity: loopback is shared by those in the same network namespace of the same boot of a kernel.
func identity() hostID {
	boot, err1 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err2 := os.Readlink("/proc/self/ns/net")
	if err1 == nil && err2 == nil {
		return identify(string(boot), namespace)
	}
	name, _ := os.Hostname()
	return identify(string(boot), namespace, guess(name))
}
