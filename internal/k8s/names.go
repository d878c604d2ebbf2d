package k8s

import (
	"fmt"
	"math/big"
	"strings"
)

// maxLabel and maxSubdomain are the lengths that DNS allows, maxQualified that of the name of a resource.
const maxLabel, maxSubdomain, maxQualified = 63, 253, 63

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func letterOrDigit(c byte) bool { return lowerOrDigit(c) || c >= 'A' && c <= 'Z' }

// isLabel reports whether s is of letters, digits and -, which is not at an end.
func isLabel(s string) bool { return isWord(s, lowerOrDigit, "-", maxLabel) }

// isSubdomain reports whether s is of labels with dots between.
func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isWord(label, lowerOrDigit, "-", maxSubdomain) {
			return false
		}
	}
	return len(s) <= maxSubdomain
}

func isQualified(s string) bool { return isWord(s, letterOrDigit, "-_.", maxQualified) }

// isWord reports whether s has from 1 to most characters, the first and last of which are plain, and all others plain
// or among more.
func isWord(s string, plain func(byte) bool, more string, most int) bool {
	if s == "" || len(s) > most || !plain(s[0]) || !plain(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !plain(s[i]) && strings.IndexByte(more, s[i]) < 0 {
			return false
		}
	}
	return true
}

// units of sizes, in bytes.
var units = map[string]int64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

// bytesOf is a size that checkSize accepts.
func bytesOf(text string) int64 {
	end := strings.LastIndexAny(text, "0123456789") + 1
	n, _ := new(big.Int).SetString(text[:end], 10)
	if n == nil {
		return 0
	}
	return n.Mul(n, big.NewInt(units[text[end:]])).Int64()
}

// checkSize refuses what is no size of memory. Of the quantities of Kubernetes those are left out that mean no whole
// number of bytes, such as 100m, which is a tenth of one.
func checkSize(flag, text string) error {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, number := new(big.Int).SetString(text[:end], 10)
	unit, known := units[text[end:]]
	if !number || !known || n.Sign() == 0 {
		return fmt.Errorf("%s %q: use a size such as 512Mi or 4Gi (k, M, G, T are powers of 1000)", flag, text)
	}
	if !n.Mul(n, big.NewInt(unit)).IsInt64() {
		return fmt.Errorf("%s %s: that is more than 8 EiB", flag, text)
	}
	return nil
}

// Program makes a name of a job of the name of its program: "" if nothing is left of it.
func Program(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, base)
	name = strings.TrimLeft(name, "-0123456789")
	const room = 40 // for the number of a pod, and what the names of pods end in
	return strings.TrimRight(name[:min(len(name), room)], "-")
}
