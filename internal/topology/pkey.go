package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParsePKey reads GORUN_VERBS_PKEY: hexadecimal, with or without 0x, as P_Keys are written everywhere. Whether bit 15
// is set does not matter: the port's table says whether it is a full member. "" is 0: no preference.
func ParsePKey(s string) (uint16, error) {
	if s == "" {
		return 0, nil
	}
	k, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X"), 16, 16)
	if err != nil || k&0x7fff == 0 {
		return 0, fmt.Errorf("GORUN_VERBS_PKEY=%q: want the P_Key of a partition, a hexadecimal number such as 8001; "+
			"`gorun info` lists those of each port", s)
	}
	return uint16(k), nil
}

// ChoosePKey says which entry of a port's table its queue pairs use. Without a preference (0) it is the first by which
// the port is a full member, because two limited members do not reach each other, else the first. A port without a
// table (RoCE ignores it) has entry 0, the default partition.
func ChoosePKey(p Port, want uint16) (PKey, error) {
	if len(p.PKeys) == 0 && want == 0 {
		return PKey{0, 0xffff}, nil
	}
	best := PKey{Index: -1}
	for _, k := range p.PKeys {
		if (want == 0 || k.Partition() == want&^0x8000) && (best.Index < 0 || k.Full() && !best.Full()) {
			best = k
		}
	}
	if best.Index < 0 {
		if len(p.PKeys) == 0 {
			return best, errors.New("GORUN_VERBS_PKEY is set, and the port lists no partitions")
		}
		return best, fmt.Errorf("the port is not in the partition of GORUN_VERBS_PKEY=%04x; it is in %v", want, p.PKeys)
	}
	return best, nil
}
