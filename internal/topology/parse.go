package topology

import (
	"net/netip"
	"strconv"
	"strings"
)

// parseNumber reads a decimal number of up to nine digits, or -1.
func parseNumber(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil
}

// parseHex reads 0x1f, as LIDs, P_Keys, PCI vendors and classes are written.
func parseHex(s string, bits int) (uint32, bool) {
	s, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 16, bits)
	return uint32(n), err == nil
}

// parseState takes the word out of "4: ACTIVE".
func parseState(s string) string {
	number, word, ok := strings.Cut(s, ":")
	if _, isNumber := parseNumber(number); !ok || !isNumber {
		return ""
	}
	return strings.TrimSpace(word)
}

// parseRate writes the unit of "100 Gb/sec (4X EDR)" as other tools do.
func parseRate(s string) string { return strings.Replace(s, "Gb/sec", "Gb/s", 1) }

// parseGID reads the eight groups of a GID. One that is all zero is an entry that is not in use.
func parseGID(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" || a.IsUnspecified() {
		return netip.Addr{}, false
	}
	return a, true
}

// parseGIDType needs the port's link, because the kernel has one word for RoCE v1 and InfiniBand.
func parseGIDType(s, link string) GIDType {
	switch s {
	case "RoCE v2":
		return TypeV2
	case "IB/RoCE v1":
		if link == "Ethernet" {
			return TypeV1
		}
		return TypeIB
	}
	return TypeUnknown
}

// parsePKey parses an entry of the table. One that is 0 is not in use.
func parsePKey(s string) (uint16, bool) {
	n, ok := parseHex(s, 16)
	return uint16(n), ok && n != 0
}

// parseModel finds the model in /proc/driver/nvidia/gpus/*/information.
func parseModel(text string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "Model" {
			return clean(value)
		}
	}
	return ""
}

// parseCount counts the members of a list such as 0-1,3, as /sys has it for NUMA nodes; 0 for what is no such list.
func parseCount(s string) (n int) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		lo, ok := parseNumber(from)
		hi := lo
		if ok && isRange {
			hi, ok = parseNumber(to)
		}
		if !ok || lo < 0 || hi < lo || hi > 1<<16 {
			return 0
		}
		n += hi - lo + 1
	}
	return n
}
